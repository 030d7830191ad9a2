#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace heddle {
namespace {

constexpr size_t kPage = 4096;

void advise(const std::byte* data, size_t size, size_t offset, size_t length, int advice) {
  if (offset >= size) return;
  const size_t begin = offset / kPage * kPage;
  const size_t end = std::min(size, offset + length);
  // Advice: a refusal changes nothing but speed.
  (void)madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}

}  // namespace

MappedFile::MappedFile(const std::byte* data, size_t size, std::string path)
    : data_(data), size_(size), path_(std::move(path)) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return fail(fmt::format("{}: not a regular file", path));
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) {
    ::close(fd);
    return fail(fmt::format("{}: the file is empty", path));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return fail(fmt::format("{}: cannot be mapped: {}", path, std::strerror(error)));
  return MappedFile(static_cast<const std::byte*>(data), size, path);
}

void MappedFile::will_need(size_t offset, size_t length) const { advise(data_, size_, offset, length, MADV_WILLNEED); }
void MappedFile::drop(size_t offset, size_t length) const { advise(data_, size_, offset, length, MADV_DONTNEED); }

void drop_file_cache(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;  // a file that is gone has nothing cached that counts
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

}  // namespace heddle
