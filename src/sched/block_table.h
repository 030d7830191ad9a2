#pragma once
// A sequence's KV blocks in order: block i holds positions [i * block_size, (i + 1) * block_size). Launched plans hold
// spans into the memory, so growing, shrinking and clearing never move or overwrite an entry that a launched step may
// still read. replace() therefore writes into a copy, and the former memory stays until the steps launched before have
// landed. Owned by its sequence; loop thread only. push() and pop() never allocate; replace() does not either once the
// memory of an earlier one has come back.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace heddle::sched {

class BlockTable {
 public:
  // Makes room for `capacity` entries. With no step in flight for this sequence, if that means to move.
  void reserve(uint32_t capacity);
  void push(BlockId id);
  BlockId pop();
  // `newest_launched`: number of the newest step whose plan exists, and which may therefore read the former entry.
  // Several calls between two launches cost one copy.
  void replace(uint32_t i, BlockId id, uint64_t newest_launched);
  // Steps up to this number have come back: memory that only they could read is freed.
  void landed(uint64_t step);

  uint32_t size() const { return size_; }
  uint32_t capacity() const { return capacity_; }
  BlockId operator[](uint32_t i) const { return ids_[i]; }
  std::span<const BlockId> span() const { return {ids_.get(), size_}; }

 private:
  struct Former {
    std::unique_ptr<BlockId[]> ids;
    uint64_t newest_reader = 0;
  };
  std::unique_ptr<BlockId[]> ids_;
  uint32_t size_ = 0, capacity_ = 0;
  uint64_t first_reader_ = 0;         // no step below this number that is still in flight reads ids_
  std::vector<Former> former_;        // in the order of newest_reader
  std::unique_ptr<BlockId[]> spare_;  // [capacity_] or null
};

}  // namespace heddle::sched
