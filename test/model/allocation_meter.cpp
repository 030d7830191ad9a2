#include "model/allocation_meter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace heddle::model {
namespace {
std::atomic<bool> metering{false};
std::atomic<size_t> total{0};
std::atomic<size_t> largest{0};
}  // namespace

void start_metering() {
  total = 0;
  largest = 0;
  metering = true;
}

Allocated stop_metering() {
  metering = false;
  return {total, largest};
}

void* metered(size_t size) {
  if (metering) {
    total += size;
    if (size > largest) largest = size;
  }
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace heddle::model

void* operator new(size_t size) {
  void* memory = heddle::model::metered(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return heddle::model::metered(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
