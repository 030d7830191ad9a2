#pragma once
// A sequence's KV blocks in order: block i holds positions [i * block_size, (i + 1) * block_size). The memory is taken
// once, for the longest table that the sequence can need, because launched plans hold spans into it: growing, shrinking
// and clearing never move or overwrite an entry that a launched step may still read.
#include <memory>
#include <span>

#include "base/check.h"
#include "base/ids.h"

namespace heddle::sched {

class BlockTable {
 public:
  void reserve(uint32_t capacity) {
    if (capacity <= capacity_) return;
    HEDDLE_CHECK_OP(size_, ==, 0u);
    ids_ = std::make_unique<BlockId[]>(capacity);
    capacity_ = capacity;
  }
  void push(BlockId id) {
    HEDDLE_CHECK_OP(size_, <, capacity_);
    ids_[size_++] = id;
  }
  BlockId pop() {
    HEDDLE_CHECK_OP(size_, >, 0u);
    return ids_[--size_];
  }
  uint32_t size() const { return size_; }
  BlockId operator[](uint32_t i) const { return ids_[i]; }
  std::span<const BlockId> span() const { return {ids_.get(), size_}; }

 private:
  std::unique_ptr<BlockId[]> ids_;
  uint32_t size_ = 0, capacity_ = 0;
};

}  // namespace heddle::sched
