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
      cache_(config.n_blocks, config.block_size),
      residency_(config.n_blocks, config.residency_share, config.residency_seed) {
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

uint32_t KvCache::cached_tokens(std::span<const TokenId> prompt,
                                const std::shared_ptr<const PrefixDomain>& domain) const {
  if (!caching_ || prompt.empty()) return 0;
  const auto n_most = static_cast<uint32_t>((prompt.size() - 1) / block_size_);
  Hash128 hash = hash_domain(seed_, *domain);
  ContentId content = 0;
  uint32_t n = 0;
  for (; n < n_most; ++n) {
    const auto tokens = prompt.subspan(size_t{n} * block_size_, block_size_);
    hash = hash_(hash, tokens);
    const auto entry = cache_.find({hash, content, &domain, tokens});
    if (!entry) break;
    content = entry->content;
  }
  return n * block_size_;
}

void KvCache::take_prefix(Sequence& sequence, const Hit& hit, MonotonicTime now) {
  HEDDLE_CHECK_OP(sequence.blocks.size(), ==, 0u);
  for (const BlockId id : hit.blocks) {
    pool_.touch(id);
    residency_.on_hit(id, now);
    sequence.blocks.push(id);
  }
  sequence.chain.n_confirmed = static_cast<uint32_t>(hit.blocks.size());
  sequence.chain.content = hit.content;
}

BlockId KvCache::take_block(MonotonicTime now) {
  const BlockId id = pool_.allocate();
  if (pool_.hashed(id)) {
    residency_.on_evict(id, now);
    cache_.erase(id);
    pool_.set_hashed(id, false);
  }
  residency_.on_allocate(id, now);
  return id;
}

// Whole blocks that were found in the cache lie below n_computed and are never written again, so only a fork comes
// here: its partial block, or, if it had to forget rows that its parent went on from, one that the cache has as full.
bool KvCache::writes_shared_block(const Sequence& sequence, uint32_t n_positions) const {
  const uint32_t i = sequence.n_computed / block_size_;
  if (n_positions <= sequence.n_computed || i >= sequence.blocks.size()) return false;
  return pool_.references(sequence.blocks[i]) > 1 || pool_.hashed(sequence.blocks[i]);
}

uint32_t KvCache::growth(const Sequence& sequence, uint32_t n_positions) const {
  const uint32_t n_wanted = blocks_for_positions(n_positions), n_owned = sequence.blocks.size();
  return (n_wanted > n_owned ? n_wanted - n_owned : 0) + writes_shared_block(sequence, n_positions);
}

bool KvCache::grow(Sequence& sequence, uint32_t n_positions, const Growth& growth) {
  if (this->growth(sequence, n_positions) > pool_.n_free()) return false;
  if (writes_shared_block(sequence, n_positions)) {
    HEDDLE_CHECK(growth.copies != nullptr);
    const uint32_t i = sequence.n_computed / block_size_;
    const BlockId from = sequence.blocks[i], to = take_block(growth.now);
    growth.copies->push_back({from, to});
    sequence.blocks.replace(i, to, growth.newest_launched);
    pool_.release(from);
  }
  const uint32_t n_wanted = blocks_for_positions(n_positions);
  while (sequence.blocks.size() < n_wanted) sequence.blocks.push(take_block(growth.now));
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

void KvCache::fork(const Sequence& parent, Sequence& child, uint32_t n_positions) {
  HEDDLE_CHECK_OP(child.blocks.size(), ==, 0u);
  HEDDLE_CHECK_OP(parent.chain.n_confirmed, <=, n_positions / block_size_);
  const std::span<const BlockId> blocks = parent.blocks.span().first(blocks_for(n_positions, block_size_));
  for (const BlockId id : blocks) {
    pool_.touch(id);
    child.blocks.push(id);
  }
  const std::vector<Hash128>& hashes = parent.chain.hashes;
  const size_t n_hashes = std::min<size_t>(hashes.size(), n_positions / block_size_);
  child.chain.hashes.assign(hashes.begin(), hashes.begin() + static_cast<ptrdiff_t>(n_hashes));
  child.chain.n_confirmed = parent.chain.n_confirmed;
  child.chain.content = parent.chain.content;
}

void KvCache::share(Sequence& sequence, uint64_t newest_launched) {
  if (!caching_) return;
  const uint32_t n_full = sequence.n_committed / block_size_;
  PrefixChain& chain = sequence.chain;
  for (; chain.n_confirmed < n_full; ++chain.n_confirmed) {
    const uint32_t i = chain.n_confirmed;
    const BlockId own = sequence.blocks[i];
    if (pool_.hashed(own)) {  // a fork that holds it too was first
      chain.content = cache_.content(own);
      continue;
    }
    const auto [content, inserted, block] =
        cache_.insert(own, {hash_of(sequence, i), chain.content, &sequence.domain, block_tokens(sequence, i)});
    chain.content = content;
    if (inserted) {
      pool_.set_hashed(own, true);
    } else if (pool_.references(own) == 1) {
      // Steps in flight may still read the block given up, but only a later launch on the same queue can write it
      // (release-after-flight).
      pool_.touch(block);
      sequence.blocks.replace(i, block, newest_launched);
      pool_.release(own);
      ++n_merged_;
    }
  }
}

bool KvCache::reset() {
  if (pool_.n_held() > 0) return false;
  cache_.clear();
  pool_.forget_hashes();
  residency_.on_reset();
  return true;
}

}  // namespace heddle::sched
