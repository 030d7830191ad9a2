#pragma once
// Counts calls of operator new while a counter is alive. Included by exactly one source of a test binary: it replaces
// the program's allocation functions.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace heddle {

inline std::atomic<bool> counting_allocations{false};
inline std::atomic<uint64_t> counted_allocations{0};

class AllocationCounter {
 public:
  AllocationCounter() {
    counted_allocations = 0;
    counting_allocations = true;
  }
  ~AllocationCounter() { counting_allocations = false; }
  uint64_t stop() {
    counting_allocations = false;
    return counted_allocations;
  }
};

}  // namespace heddle

// Not inlined: the compiler would see free() on what it takes for the standard operator new.
[[gnu::noinline]] void* operator new(size_t size) {
  if (heddle::counting_allocations) ++heddle::counted_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (heddle::counting_allocations) ++heddle::counted_allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
