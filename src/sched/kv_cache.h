#pragma once
// Blocks as sequences use them: the pool and the prefix index together. Loop thread only; no allocation on the decode
// path. Who owns a block when: DESIGN.md, the scheduler's page.
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/block_pool.h"
#include "sched/config.h"
#include "sched/plan.h"
#include "sched/prefix_cache.h"
#include "sched/residency.h"
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
  // How many of a prompt's tokens the cache holds, without a sequence: for choosing between engines, and for estimates.
  // Hashes nothing past the first block that is missing.
  uint32_t cached_tokens(std::span<const TokenId> prompt, const std::shared_ptr<const PrefixDomain>& domain) const;
  // Gives an empty table the blocks of a hit.
  void take_prefix(Sequence& sequence, const Hit& hit, MonotonicTime now);

  // What one growth may do: now, for residency; newest_launched, for the table's memory; copies, for blocks that
  // another sequence holds too.
  struct Growth {
    MonotonicTime now{};
    uint64_t newest_launched = 0;
    std::vector<BlockCopy>* copies = nullptr;
  };
  // Lets the table cover `n_positions` and the lookahead, and makes the block of the first row to be computed
  // (sequence.n_computed) the sequence's own: one that others hold too (after a fork), or that the cache knows, is
  // copied on write. False, and nothing changed, if too few blocks are free. The copies are to be made in their order.
  bool grow(Sequence& sequence, uint32_t n_positions, const Growth& growth);
  // Blocks that grow() would take.
  uint32_t growth(const Sequence& sequence, uint32_t n_positions) const;
  // Gives back blocks past `n_positions`, tail first.
  void shrink(Sequence& sequence, uint32_t n_positions);
  void release(Sequence& sequence) { shrink(sequence, 0); }
  // Gives `child` (an empty table with room) every block of `parent` for the first n_positions, the partial one
  // included. Their tokens are equal that far, and the parent has not committed more.
  void fork(const Sequence& parent, Sequence& child, uint32_t n_positions);
  // Makes the full blocks below n_committed shareable. Called when their content is in memory, never before. A block
  // whose content another block has already (computed side by side) is given up for that one, unless it is held by
  // others too.
  void share(Sequence& sequence, uint64_t newest_launched);

  // Forgets every hash. False, and nothing changed, while anybody holds a block.
  bool reset();

  uint32_t blocks_for_positions(uint32_t n_positions) const;  // lookahead included
  uint32_t block_size() const { return block_size_; }
  const BlockPool& pool() const { return pool_; }
  ResidencySampler& residency() { return residency_; }
  uint64_t n_merged() const { return n_merged_; }  // blocks given up for an equal one

 private:
  std::span<const TokenId> block_tokens(const Sequence& sequence, uint32_t i) const;
  const Hash128& hash_of(Sequence& sequence, uint32_t i);
  BlockId take_block(MonotonicTime now);
  bool writes_shared_block(const Sequence& sequence, uint32_t n_positions) const;

  uint32_t block_size_, n_lookahead_, max_positions_;
  bool caching_;
  uint64_t seed_;
  BlockHash hash_;
  BlockPool pool_;
  PrefixCache cache_;
  ResidencySampler residency_;
  std::vector<BlockId> hit_;  // [n_blocks] of find_prefix
  uint64_t n_merged_ = 0;
};

}  // namespace heddle::sched
