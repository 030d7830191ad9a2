#include "sched/block_table.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::sched {

void BlockTable::reserve(uint32_t capacity) {
  if (capacity <= capacity_) return;
  auto ids = std::make_unique<BlockId[]>(capacity);
  std::copy_n(ids_.get(), size_, ids.get());
  ids_ = std::move(ids);
  capacity_ = capacity;
  former_.clear();
  spare_.reset();
}

void BlockTable::push(BlockId id) {
  HEDDLE_CHECK_OP(size_, <, capacity_);
  ids_[size_++] = id;
}

BlockId BlockTable::pop() {
  HEDDLE_CHECK_OP(size_, >, 0u);
  return ids_[--size_];
}

void BlockTable::replace(uint32_t i, BlockId id, uint64_t newest_launched) {
  HEDDLE_CHECK_OP(i, <, size_);
  if (newest_launched >= first_reader_) {
    std::unique_ptr<BlockId[]> ids = spare_ ? std::move(spare_) : std::make_unique<BlockId[]>(capacity_);
    std::copy_n(ids_.get(), size_, ids.get());
    former_.push_back({std::move(ids_), newest_launched});
    ids_ = std::move(ids);
    first_reader_ = newest_launched + 1;
  }
  ids_[i] = id;
}

void BlockTable::landed(uint64_t step) {
  first_reader_ = std::max(first_reader_, step + 1);
  const auto first_kept = std::ranges::find_if(former_, [step](const Former& f) { return f.newest_reader > step; });
  if (first_kept == former_.begin()) return;
  spare_ = std::move(former_.front().ids);
  former_.erase(former_.begin(), first_kept);
}

}  // namespace heddle::sched
