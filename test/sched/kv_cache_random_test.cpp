#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "kv_fixture.h"

namespace heddle::sched {
namespace {

// A device by the book: for each position of each block, what was written there last, as a number that stands for the
// sequence's domain and all tokens up to that position. Steps run in order when they land, after later ones were
// planned, as on a runner's queue: a block that is given away too early is overwritten before it is read.
constexpr uint32_t kBlock = 4, kBlocks = 28, kMaxTokens = 48, kSequences = 6, kDepth = 3;

uint64_t next_content(uint64_t before, TokenId token) {
  uint64_t x = before * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(token) + 1;
  x ^= x >> 29;
  return x * 0xBF58476D1CE4E5B9u;
}

struct Live {
  Sequence* s = nullptr;
  bool active = false;  // has blocks; otherwise its rows in flight are of no use to it
  uint32_t n_in_flight = 0;
};
struct Rows {
  Live* live = nullptr;
  uint32_t first = 0, n = 0;
  std::vector<uint64_t> contents;  // [first + n] of the positions, as planned
  std::span<const BlockId> blocks;
  std::vector<BlockId> planned;  // what `blocks` held when it was planned
  bool committed = true;         // its sequence goes on
};
struct Step {
  uint64_t number = 0;
  std::vector<Rows> rows;
  std::vector<BlockCopy> copies;
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed), bench_(config()), live_(kSequences) {
    for (Live& l : live_) l.s = &bench_.add({}, random_() % 3 == 0 ? "salt" : "");
  }

  void turn() {
    bench_.now += std::chrono::seconds(1);
    const auto n_merged = bench_.kv.n_merged();
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
        admit(any());
        break;
      case 3:
      case 4:
        fork(any(), any());
        break;
      case 5:
        preempt(any());
        break;
      case 6:
        end(any());
        break;
      case 7:
        if (random_() % 2 == 0) fault();
        break;
      case 8:
        reset();
        break;
      case 9:
      case 10:
      case 11:
        land();
        break;
      default:
        plan();
    }
    n_merged_ += bench_.kv.n_merged() - n_merged;
    n_evicted_ += bench_.kv.residency().take().size();
    check();
  }

  uint64_t n_hits_ = 0, n_copies_ = 0, n_merged_ = 0, n_evicted_ = 0, n_resets_ = 0, n_refused_ = 0, n_preempted_ = 0,
           n_cached_kept_ = 0, n_undone_copies_ = 0, n_rows_ = 0, n_reads_ = 0;

 private:
  static Config config() {
    Config c = KvBench::config(kBlocks, kBlock);
    c.max_model_len = kMaxTokens;
    c.n_lookahead = 2;
    c.residency_share = 1;
    return c;
  }
  Live& any() { return live_[random_() % live_.size()]; }
  TokenId token() { return static_cast<TokenId>(random_() % 8 == 0); }  // few, so that contents are often equal

  std::vector<uint64_t> contents(const Sequence& s, uint32_t n) const {
    std::vector<uint64_t> out;
    uint64_t content = s.domain->salt.empty() ? 1 : 2;
    for (uint32_t i = 0; i < n; ++i) out.push_back(content = next_content(content, s.tokens[i]));
    return out;
  }
  uint64_t& at(BlockId block, uint32_t position) { return memory_[block.value * kBlock + position % kBlock]; }

  void admit(Live& l) {
    if (l.active || l.n_in_flight > 0) return;
    Sequence& s = *l.s;
    if (random_() % 3 > 0 || s.tokens.empty()) {  // another prompt; else it is computed again
      s.tokens.clear();
      s.chain.hashes.clear();
      const auto n = 1 + random_() % (kMaxTokens - 8);
      while (s.tokens.size() < n) s.tokens.push_back(token());
    }
    const uint32_t n_cached = bench_.kv.cached_tokens(s.tokens, s.domain);
    const KvCache::Hit hit = bench_.kv.find_prefix(s);
    REQUIRE(hit.blocks.size() * kBlock == n_cached);
    REQUIRE(n_cached < s.n_known());
    bench_.kv.take_prefix(s, hit, bench_.now);
    s.n_computed = s.n_committed = n_cached;
    n_hits_ += hit.blocks.size();
    l.active = true;
  }

  void fork(Live& parent, Live& child) {
    if (!parent.active || child.active || child.n_in_flight > 0 || parent.s->n_computed == 0) return;
    Sequence &p = *parent.s, &c = *child.s;
    c.tokens.assign(p.tokens.begin(), p.tokens.begin() + p.n_computed);
    c.domain = p.domain;
    bench_.kv.fork(p, c, p.n_computed);
    c.n_computed = p.n_computed;
    c.n_committed = p.n_committed;
    child.active = true;
  }

  void plan() {
    if (flight_.size() == kDepth) return;
    Step step;
    step.number = bench_.newest_launched + 1;
    bench_.copies.clear();
    for (Live& l : live_) {
      Sequence& s = *l.s;
      if (!l.active || random_() % 4 == 0) continue;
      if (s.n_computed == s.n_known()) s.tokens.push_back(token());
      const auto n = static_cast<uint32_t>(1 + random_() % (s.n_known() - s.n_computed));
      if (s.n_computed + n > kMaxTokens) continue;
      if (!grow(l, n, step)) continue;
      step.rows.push_back({&l,
                           s.n_computed,
                           n,
                           contents(s, s.n_computed + n),
                           s.blocks.span(),
                           {s.blocks.span().begin(), s.blocks.span().end()}});
      s.n_computed += n;
      ++l.n_in_flight;
    }
    if (step.rows.empty()) return;  // not launched, and whoever wanted the copies has given them up
    step.copies = bench_.copies;
    n_copies_ += step.copies.size();
    bench_.newest_launched = step.number;
    flight_.push_back(std::move(step));
  }

  // Preempts others, in the plan under way or not, until there is room.
  bool grow(Live& l, uint32_t n, Step& step) {
    Sequence& s = *l.s;
    while (true) {
      const uint32_t n_positions = s.n_computed + n, n_taken = bench_.kv.growth(s, n_positions);
      const uint32_t n_free = bench_.kv.pool().n_free();
      const size_t n_copies = bench_.copies.size();
      const auto before = KvBench::blocks(s);
      const bool grown = bench_.kv.grow(s, n_positions, {bench_.now, bench_.newest_launched, &bench_.copies});
      REQUIRE(grown == (n_taken <= n_free));
      const bool freed = bench_.copies.size() > n_copies && bench_.kv.pool().references(bench_.copies.back().from) == 0;
      REQUIRE(bench_.kv.pool().n_free() == n_free - (grown ? n_taken : 0) + freed);
      n_cached_kept_ += freed;
      if (grown) return true;
      REQUIRE(KvBench::blocks(s) == before);
      ++n_refused_;
      Live& victim = any();
      if (&victim == &l) return false;
      std::erase_if(step.rows, [&](const Rows& r) {
        if (r.live != &victim) return false;
        --victim.n_in_flight;
        return true;
      });
      preempt(victim);
    }
  }

  void preempt(Live& l) {
    if (!l.active) return;
    n_preempted_ += l.n_in_flight > 0;
    for (Step& step : flight_)
      for (Rows& r : step.rows)
        if (r.live == &l) r.committed = false;
    bench_.end(*l.s);
    l.active = false;
  }
  void end(Live& l) {
    if (l.n_in_flight == 0) preempt(l);
  }

  void run_copies(const Step& step) {
    for (const BlockCopy& copy : step.copies)
      for (uint32_t i = 0; i < kBlock; ++i) at(copy.to, i) = at(copy.from, i);
  }

  void land() {
    if (flight_.empty()) return;
    Step step = std::move(flight_.front());
    flight_.erase(flight_.begin());
    run_copies(step);
    std::shuffle(step.rows.begin(), step.rows.end(), random_);
    for (const Rows& r : step.rows) {
      REQUIRE(std::equal(r.planned.begin(), r.planned.end(), r.blocks.begin(), r.blocks.end()));
      for (uint32_t i = r.first; i < r.first + r.n; ++i) at(r.blocks[i / kBlock], i) = r.contents[i];
      for (uint32_t i = 0; i < r.first + r.n; ++i) REQUIRE(at(r.blocks[i / kBlock], i) == r.contents[i]);
      n_rows_ += r.n;
      n_reads_ += r.first;
    }
    for (const Rows& r : step.rows) {
      --r.live->n_in_flight;
      r.live->s->blocks.landed(step.number);
      if (!r.committed) continue;
      r.live->s->n_committed = r.first + r.n;
      bench_.kv.share(*r.live->s, bench_.newest_launched);
    }
  }

  // No step in flight ran. What was not committed is computed again, and so is a block whose copy was not made, by
  // everyone who holds it.
  void fault() {
    std::set<uint32_t> not_made;
    for (const Step& step : flight_) {
      for (const Rows& r : step.rows) {
        --r.live->n_in_flight;
        r.live->s->blocks.landed(step.number);
      }
      for (const BlockCopy& copy : step.copies) not_made.insert(copy.to.value);
    }
    flight_.clear();
    for (Live& l : live_) {
      if (!l.active) continue;
      Sequence& s = *l.s;
      const uint32_t n_whole = s.n_committed / kBlock * kBlock;
      if (n_whole < s.n_committed && not_made.contains(s.blocks[n_whole / kBlock].value)) {
        s.n_committed = n_whole;
        ++n_undone_copies_;
      }
      s.n_computed = s.n_committed;
      bench_.kv.shrink(s, s.n_computed);
    }
  }

  void reset() {
    if (random_() % 16 == 0)
      for (Live& l : live_) end(l);
    const bool held = bench_.kv.pool().n_held() > 0;
    REQUIRE(bench_.kv.reset() == !held);
    if (held) return;
    REQUIRE(bench_.kv.pool().n_cached() == 0);
    ++n_resets_;
  }

  void check() {
    const BlockPool& pool = bench_.kv.pool();
    std::array<uint32_t, kBlocks> references{};
    std::set<uint32_t> awaited;  // targets of copies in flight
    for (const Step& step : flight_)
      for (const BlockCopy& copy : step.copies) awaited.insert(copy.to.value);
    for (const Live& l : live_) {
      const Sequence& s = *l.s;
      for (const BlockId id : s.blocks.span()) ++references[id.value];
      if (!l.active) continue;
      REQUIRE(s.blocks.size() * kBlock >= s.n_computed);
      REQUIRE(s.chain.n_confirmed <= s.n_committed / kBlock);
      const auto expected = contents(s, s.n_committed);
      for (uint32_t i = 0; i < s.n_committed; ++i)
        if (const BlockId id = s.blocks[i / kBlock]; !awaited.contains(id.value)) REQUIRE(at(id, i) == expected[i]);
    }
    uint32_t n_free = 0, n_cached = 0;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      REQUIRE(pool.references(BlockId(i)) == references[i]);
      n_free += references[i] == 0;
      n_cached += references[i] == 0 && pool.hashed(BlockId(i));
    }
    REQUIRE(pool.n_free() == n_free);
    REQUIRE(pool.free_list().size() == n_free);
    REQUIRE(pool.n_cached() == n_cached);
  }

  std::mt19937 random_;
  KvBench bench_;
  std::vector<Live> live_;
  std::vector<Step> flight_;
  std::array<uint64_t, size_t{kBlocks} * kBlock> memory_{};
};

TEST_CASE("whatever is admitted, forked, merged, preempted and undone, each row reads the tokens of its own sequence") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  World world(seed);
  for (int i = 0; i < 50'000; ++i) world.turn();
  MESSAGE("seed " << seed << ": rows " << world.n_rows_ << ", hits " << world.n_hits_ << ", copies " << world.n_copies_
                  << ", merged " << world.n_merged_ << ", evicted " << world.n_evicted_ << ", refused "
                  << world.n_refused_ << ", preempted in flight " << world.n_preempted_ << ", copies undone "
                  << world.n_undone_copies_ << ", cached kept from a write " << world.n_cached_kept_ << ", resets "
                  << world.n_resets_);
  CHECK(world.n_reads_ > 0);
  CHECK(world.n_hits_ > 0);
  CHECK(world.n_copies_ > 0);
  CHECK(world.n_merged_ > 0);
  CHECK(world.n_evicted_ > 0);
  CHECK(world.n_refused_ > 0);
  CHECK(world.n_preempted_ > 0);
  CHECK(world.n_undone_copies_ > 0);
  CHECK(world.n_resets_ > 0);
}

}  // namespace
}  // namespace heddle::sched
