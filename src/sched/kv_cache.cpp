#include "sched/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "sched/admission.h"

namespace heddle::sched {

KvCache::KvCache(const Config& config, BlockHash hash)
    : block_size_(config.block_size),
      n_lookahead_(config.n_lookahead),
      max_positions_(config.max_model_len),
      caching_(config.enable_prefix_caching),
      seed_(config.prefix_hash_seed),
      hash_(hash),
      pool_(config.n_blocks),
      cache_(config.n_blocks, config.block_size) {
  hit_.reserve(config.n_blocks);
}

uint32_t KvCache::blocks_for_positions(uint32_t n_positions) const {
  return blocks_for(covered_positions(n_positions, n_lookahead_, max_positions_), block_size_);
}

std::span<const TokenId> KvCache::block_tokens(const Sequence& sequence, uint32_t i) const {
  return std::span(sequence.tokens).subspan(size_t{i} * block_size_, block_size_);
}

const Hash128& KvCache::hash_of(Sequence& sequence, uint32_t i) {
  std::vector<Hash128>& hashes = sequence.chain.hashes;
  while (hashes.size() <= i) {
    const auto n = static_cast<uint32_t>(hashes.size());
    const Hash128 parent = n == 0 ? hash_domain(seed_, *sequence.domain) : hashes.back();
    hashes.push_back(hash_(parent, block_tokens(sequence, n)));
  }
  return hashes[i];
}

KvCache::Hit KvCache::find_prefix(Sequence& sequence) {
  Hit hit;
  hit_.clear();
  if (!caching_) return hit;
  const uint32_t n_most = (sequence.n_known() - 1) / block_size_;
  for (uint32_t i = 0; i < n_most; ++i) {
    const auto entry = cache_.find({hash_of(sequence, i), hit.content, &sequence.domain, block_tokens(sequence, i)});
    if (!entry) break;
    hit_.push_back(entry->block);
    hit.content = entry->content;
    hit.n_idle += pool_.references(entry->block) == 0;
  }
  hit.blocks = hit_;
  return hit;
}

void KvCache::take_prefix(Sequence& sequence, const Hit& hit) {
  HEDDLE_CHECK_OP(sequence.blocks.size(), ==, 0u);
  for (const BlockId id : hit.blocks) {
    pool_.touch(id);
    sequence.blocks.push(id);
  }
  sequence.chain.n_confirmed = static_cast<uint32_t>(hit.blocks.size());
  sequence.chain.content = hit.content;
}

bool KvCache::grow(Sequence& sequence, uint32_t n_positions) {
  const uint32_t n_wanted = blocks_for_positions(n_positions);
  const uint32_t n_owned = sequence.blocks.size();
  if (n_wanted <= n_owned) return true;
  if (n_wanted - n_owned > pool_.n_free()) return false;
  for (uint32_t i = n_owned; i < n_wanted; ++i) {
    const BlockId id = pool_.allocate();
    if (pool_.hashed(id)) {
      cache_.erase(id);
      pool_.set_hashed(id, false);
    }
    sequence.blocks.push(id);
  }
  return true;
}

void KvCache::shrink(Sequence& sequence, uint32_t n_positions) {
  const uint32_t n_kept = blocks_for(n_positions, block_size_);
  while (sequence.blocks.size() > n_kept) pool_.release(sequence.blocks.pop());
  if (n_kept == 0) {
    sequence.chain.n_confirmed = 0;
    sequence.chain.content = 0;
  }
  HEDDLE_CHECK_OP(sequence.chain.n_confirmed, <=, n_kept);
}

void KvCache::share(Sequence& sequence) {
  if (!caching_) return;
  const uint32_t n_full = sequence.n_committed / block_size_;
  PrefixChain& chain = sequence.chain;
  for (; chain.n_confirmed < n_full; ++chain.n_confirmed) {
    const uint32_t i = chain.n_confirmed;
    const BlockId id = sequence.blocks[i];
    const auto [content, inserted] =
        cache_.insert(id, {hash_of(sequence, i), chain.content, &sequence.domain, block_tokens(sequence, i)});
    if (inserted) pool_.set_hashed(id, true);
    chain.content = content;
  }
}

}  // namespace heddle::sched
