#pragma once
// The KV blocks of one engine: who holds a block, and in which order free ones are taken. Loop thread only; no
// allocation after construction. A free block may still have a hash, that is, a content that a later prompt can hit; it
// is given up when the block is taken for something else.
//
// Order of the free list: taken from the front. A released block without a hash goes to the front (its content is worth
// nothing), one with a hash to the tail; a sequence releases its blocks tail first, so that the head of a prompt, which
// most others share, is evicted last.
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace heddle::sched {

class BlockPool {
 public:
  explicit BlockPool(uint32_t n_blocks);

  // Takes the front block with one reference. There must be one. If it had a hash, the caller drops the cache entry and
  // calls set_hashed(id, false) before it uses the block.
  BlockId allocate();
  // One more reference; a free block leaves the free list.
  void touch(BlockId id);
  // One reference less; at none, the block goes to its place in the free list.
  void release(BlockId id);
  void set_hashed(BlockId id, bool hashed);
  // No block has a hash any more. While none is held; the free list keeps its order.
  void forget_hashes();

  bool hashed(BlockId id) const { return blocks_[id.value].hashed; }
  uint32_t references(BlockId id) const { return blocks_[id.value].references; }
  uint32_t n_total() const { return static_cast<uint32_t>(blocks_.size() - 1); }
  uint32_t n_free() const { return n_free_; }      // with or without a hash
  uint32_t n_cached() const { return n_cached_; }  // free, with a hash
  uint32_t n_held() const { return n_total() - n_free_; }
  std::vector<BlockId> free_list() const;  // front first; for tests and the validator

 private:
  struct Block {
    uint32_t references = 0;
    uint32_t next = 0, previous = 0;  // while free
    bool hashed = false;
  };
  void link_front(uint32_t index);
  void link_back(uint32_t index);
  void unlink(uint32_t index);

  std::vector<Block> blocks_;  // [n_blocks + 1]: the last one is the ring's anchor
  uint32_t n_free_ = 0, n_cached_ = 0;
};

}  // namespace heddle::sched
