#include "cpu/weight_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace heddle::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlab = size_t{64} << 20;  // address space; pages come as they are touched
constexpr size_t kAlign = 64;
constexpr size_t kReadAhead = 64;

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

WeightMemory::~WeightMemory() { clear(); }

void WeightMemory::clear() {
  const std::lock_guard lock(mutex_);
  for (const Slab& slab : slabs_) munmap(slab.data, slab.size);
  slabs_.clear();
}

Result<std::byte*> WeightMemory::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t wanted = round_up(bytes + kReadAhead, kAlign);
  if (slabs_.empty() || slabs_.back().size - slabs_.back().used < wanted) {
    const size_t size = round_up(std::max(wanted, kSlab), kHugePage);
    void* mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return fail(fmt::format("weights: cannot map {} bytes: {}", size, std::strerror(errno)));
    // Cut to a huge-page boundary on both sides.
    auto* begin = static_cast<std::byte*>(mapped);
    const size_t before = round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
    if (before > 0) munmap(begin, before);
    if (before < kHugePage) munmap(begin + before + size, kHugePage - before);
    madvise(begin + before, size, MADV_HUGEPAGE);  // advice only: a kernel without it gives small pages
    slabs_.push_back({begin + before, size, 0});
  }
  Slab& slab = slabs_.back();
  std::byte* at = slab.data + slab.used;
  slab.used += wanted;
  return at;
}

size_t WeightMemory::allocated() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const Slab& slab : slabs_) sum += slab.used;
  return sum;
}

}  // namespace heddle::cpu
