#include "cpu/mapped_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace heddle::cpu {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

MappedMemory::MappedMemory(size_t bytes) {
  if (bytes == 0) return;
  size_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // One page more, then the unaligned ends are given back.
  void* at =
      mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    check_failed(__FILE__, __LINE__, "mmap", fmt::format("{} bytes: {}", size_, std::strerror(errno)));
  auto* begin = static_cast<std::byte*>(at);
  const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (skip > 0) munmap(begin, skip);
  munmap(begin + skip + size_, kHugePage - skip);
  data_ = begin + skip;
  madvise(data_, size_, MADV_HUGEPAGE);  // advice only: a kernel without huge pages is slower, not wrong
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedMemory::forget() {
  if (size_ > 0 && madvise(data_, size_, MADV_DONTNEED) != 0)
    check_failed(__FILE__, __LINE__, "madvise", fmt::format("{} bytes: {}", size_, std::strerror(errno)));
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace heddle::cpu
