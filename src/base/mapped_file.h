#pragma once
// A read-only memory-mapped file. Owner: whoever opened it; any thread may read. A file that shrinks under the map is a
// SIGBUS, so sizes are compared with the header before use (model/gguf).
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace heddle {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that the range will be read soon, or never again (its resident pages are given back).
  void will_need(size_t offset, size_t length) const;
  void drop(size_t offset, size_t length) const;

 private:
  MappedFile(const std::byte* data, size_t size, std::string path);
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Asks the kernel to forget its cached pages of the file; those that somebody maps stay. May take long for a large
// file.
void drop_file_cache(const std::string& path);

}  // namespace heddle
