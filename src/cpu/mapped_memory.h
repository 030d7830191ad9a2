#pragma once
// A large anonymous mapping: aligned to and advised for huge pages, zero-filled, and not touched: memory is used when
// it is first written, so taking much of it is instant. Owner: whoever made it. Running out of address space is a bug
// of the memory plan and aborts.
#include <cstddef>

namespace heddle::cpu {

class MappedMemory {
 public:
  MappedMemory() = default;
  explicit MappedMemory(size_t bytes);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  void forget();  // its pages go back to the system; it reads as zeros again

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace heddle::cpu
