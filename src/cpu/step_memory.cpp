#include "cpu/step_memory.h"

#include <algorithm>

namespace heddle::cpu {

std::byte* StepMemory::take(size_t bytes, uint64_t n_completed) {
  bytes = (bytes + 63) / 64 * 64;
  const auto fits = [&](const Page& page) {
    if (page.free_after == kOpen) return page.size - page.used >= bytes;
    return page.free_after <= n_completed && page.size >= bytes;
  };
  if (current_ >= pages_.size() || !fits(pages_[current_])) {
    const auto page = std::find_if(pages_.begin(), pages_.end(), fits);
    current_ = static_cast<size_t>(page - pages_.begin());
    if (page == pages_.end()) {
      const size_t size = std::max(bytes, kPageBytes);
      pages_.push_back({});
      pages_.back().data.reset(static_cast<std::byte*>(::operator new[](size, std::align_val_t{64})));
      pages_.back().size = size;
    }
  }
  Page& page = pages_[current_];
  if (page.free_after != kOpen) {
    page.used = 0;
    page.free_after = kOpen;
  }
  std::byte* at = page.data.get() + page.used;
  page.used += bytes;
  return at;
}

void StepMemory::close(uint64_t n_commands) {
  for (Page& page : pages_)
    if (page.free_after == kOpen) page.free_after = n_commands;
}

size_t StepMemory::allocated() const {
  size_t bytes = 0;
  for (const Page& page : pages_) bytes += page.size;
  return bytes;
}

}  // namespace heddle::cpu
