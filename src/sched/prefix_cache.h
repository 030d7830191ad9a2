#pragma once
// Which block holds which content: an index from chained hashes to computed, full blocks. Owned by KvCache; loop thread
// only; no allocation after construction.
//
// A content is a number given to (parent content, tokens, domain) when it first enters. A block's entry keeps all
// three, and a look-up confirms them; the parent is compared as a content that the walk has itself confirmed, so two
// prompts share a block only if every token before it is equal, whatever their hashes are (hash-is-not-identity).
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sched/prefix_hash.h"

namespace heddle::sched {

using ContentId = uint64_t;  // never reused; 0 is the empty prefix

class PrefixCache {
 public:
  struct Key {
    Hash128 hash;
    ContentId parent = 0;
    const std::shared_ptr<const PrefixDomain>* domain = nullptr;
    std::span<const TokenId> tokens;  // [block_size]
  };
  struct Entry {
    BlockId block;
    ContentId content = 0;
  };

  PrefixCache(uint32_t n_blocks, uint32_t block_size);

  std::optional<Entry> find(const Key& key) const;
  // Puts the block, which has no entry yet, under the key. If an equal content is there already, that entry is returned
  // and the block stays out (inserted = false).
  struct Inserted {
    ContentId content = 0;
    bool inserted = false;
    BlockId block;  // that has the content now
  };
  Inserted insert(BlockId block, const Key& key);
  void erase(BlockId block);
  void clear();
  ContentId content(BlockId block) const { return slots_[block.value].content; }  // 0: the block has no entry
  size_t size() const { return n_entries_; }

 private:
  struct Slot {
    Hash128 hash;
    ContentId content = 0;  // 0: the block has no entry
    ContentId parent = 0;
    std::shared_ptr<const PrefixDomain> domain;  // of first blocks only: later ones inherit it through the parent
    uint32_t next = 0;                           // in the bucket; kNone ends it
  };
  bool matches(uint32_t index, const Key& key) const;
  uint32_t bucket(const Hash128& hash) const { return static_cast<uint32_t>(hash.low) & mask_; }

  uint32_t block_size_;
  uint32_t mask_;
  std::vector<uint32_t> buckets_;  // [power of two above n_blocks] index of the first block
  std::vector<Slot> slots_;        // [n_blocks]
  std::vector<TokenId> tokens_;    // [n_blocks, block_size]
  ContentId next_content_ = 1;
  size_t n_entries_ = 0;
};

}  // namespace heddle::sched
