#pragma once
// A KV cache and sequences without a scheduler: the test itself says which rows are planned and committed.
#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sched/kv_cache.h"

namespace heddle::sched {

class KvBench {
 public:
  using Ids = std::vector<uint32_t>;

  explicit KvBench(const Config& config) : kv(config), max_positions_(config.max_model_len) {}

  static Config config(uint32_t n_blocks, uint32_t block_size) {
    Config c;
    c.n_blocks = n_blocks;
    c.block_size = block_size;
    c.max_model_len = 256;
    return c;
  }

  Sequence& add(std::vector<TokenId> tokens, std::string salt = "") {
    Sequence& s = sequences_.emplace_back();
    s.tokens = std::move(tokens);
    s.domain = std::make_shared<const PrefixDomain>(PrefixDomain{"model", std::move(salt)});
    s.blocks.reserve(kv.blocks_for_positions(max_positions_));
    return s;
  }
  // Blocks of the prefix that the cache had.
  uint32_t admit(Sequence& s) {
    const KvCache::Hit hit = kv.find_prefix(s);
    const auto n = static_cast<uint32_t>(hit.blocks.size());
    kv.take_prefix(s, hit, now);
    s.n_computed = s.n_committed = n * kv.block_size();
    return n;
  }
  // Plans the rows below `n_positions`, as part of step `newest_launched` + 1.
  bool plan(Sequence& s, uint32_t n_positions) {
    if (!kv.grow(s, n_positions, {now, newest_launched, &copies})) return false;
    s.n_computed = n_positions;
    return true;
  }
  void commit(Sequence& s) {
    s.n_committed = s.n_computed;
    kv.share(s, newest_launched);
  }
  void compute(Sequence& s) {
    REQUIRE(plan(s, s.n_known()));
    commit(s);
  }
  void end(Sequence& s) {
    kv.release(s);
    s.n_computed = s.n_committed = 0;
  }

  Ids free_list() const { return ids(kv.pool().free_list()); }
  static Ids ids(std::span<const BlockId> blocks) {
    Ids out;
    for (const BlockId id : blocks) out.push_back(id.value);
    return out;
  }
  static Ids blocks(const Sequence& s) { return ids(s.blocks.span()); }

  KvCache kv;
  std::vector<BlockCopy> copies;
  MonotonicTime now{};
  uint64_t newest_launched = 0;

 private:
  uint32_t max_positions_;
  std::deque<Sequence> sequences_;
};

}  // namespace heddle::sched
