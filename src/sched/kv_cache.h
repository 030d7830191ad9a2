#pragma once
// Blocks as sequences use them: the pool and the prefix index together. Loop thread only; no allocation on the decode
// path. Who owns a block when: DESIGN.md, the scheduler's page.
#include <cstdint>
#include <vector>

#include "sched/block_pool.h"
#include "sched/config.h"
#include "sched/prefix_cache.h"
#include "sched/sequence.h"

namespace heddle::sched {

using BlockHash = Hash128 (*)(const Hash128& parent, std::span<const TokenId> tokens);

class KvCache {
 public:
  // `hash` is replaced in tests, to force collisions.
  explicit KvCache(const Config& config, BlockHash hash = hash_block);

  // The longest prefix of the sequence's tokens that the cache holds, in whole blocks. The last token is never part of
  // it: its row must be computed for its logits. Changes nothing but the sequence's hashes. Valid until the next call.
  struct Hit {
    std::span<const BlockId> blocks;
    uint32_t n_idle = 0;  // of them, blocks that nobody holds: taking them makes the free list shorter
    ContentId content = 0;
  };
  Hit find_prefix(Sequence& sequence);
  // Gives an empty table the blocks of a hit.
  void take_prefix(Sequence& sequence, const Hit& hit);

  // Lets the table cover `n_positions` and the lookahead. False, and nothing changed, if too few blocks are free.
  bool grow(Sequence& sequence, uint32_t n_positions);
  // Gives back blocks past `n_positions`, tail first.
  void shrink(Sequence& sequence, uint32_t n_positions);
  void release(Sequence& sequence) { shrink(sequence, 0); }
  // Makes the full blocks below n_committed shareable. Called when their content is in memory, never before.
  void share(Sequence& sequence);

  uint32_t blocks_for_positions(uint32_t n_positions) const;  // lookahead included
  uint32_t block_size() const { return block_size_; }
  const BlockPool& pool() const { return pool_; }

 private:
  std::span<const TokenId> block_tokens(const Sequence& sequence, uint32_t i) const;
  const Hash128& hash_of(Sequence& sequence, uint32_t i);

  uint32_t block_size_, n_lookahead_, max_positions_;
  bool caching_;
  uint64_t seed_;
  BlockHash hash_;
  BlockPool pool_;
  PrefixCache cache_;
  std::vector<BlockId> hit_;  // [n_blocks] of find_prefix
};

}  // namespace heddle::sched
