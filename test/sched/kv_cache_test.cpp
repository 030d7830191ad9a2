#include "sched/kv_cache.h"

#include <numeric>

#include "kv_fixture.h"

namespace heddle::sched {
namespace {

using Ids = KvBench::Ids;

std::vector<TokenId> counting(uint32_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST_CASE("equal_prompts_in_one_step: two equal prompts of 32 hit nothing, and are merged when they are committed") {
  KvBench bench(KvBench::config(8, 16));
  Sequence &a = bench.add(counting(32)), &b = bench.add(counting(32));
  CHECK(bench.admit(a) == 0);
  CHECK(bench.admit(b) == 0);
  REQUIRE(bench.plan(a, 32));
  REQUIRE(bench.plan(b, 32));
  CHECK(bench.kv.pool().n_held() == 4);
  bench.newest_launched = 1;
  const auto launched = b.blocks.span();
  bench.commit(a);
  CHECK(bench.kv.n_merged() == 0);
  bench.commit(b);
  CHECK(bench.kv.n_merged() == 2);
  CHECK(KvBench::blocks(a) == Ids{0, 1});
  CHECK(KvBench::blocks(b) == Ids{0, 1});
  CHECK(KvBench::ids(launched) == Ids{2, 3});         // what a later step in flight still reads
  CHECK(bench.free_list() == Ids{3, 2, 4, 5, 6, 7});  // no hash: the next to be taken
  CHECK(bench.kv.pool().references(BlockId(0)) == 2);
  bench.end(a);
  bench.end(b);
  CHECK(bench.kv.pool().n_held() == 0);
  CHECK(bench.kv.pool().n_cached() == 2);
}

TEST_CASE("a block is given up for an equal one that nobody holds any more") {
  KvBench bench(KvBench::config(4, 4));
  Sequence &a = bench.add(counting(4)), &b = bench.add(counting(4));
  REQUIRE(bench.plan(a, 4));
  REQUIRE(bench.plan(b, 4));
  bench.commit(a);
  bench.end(a);
  CHECK(bench.kv.pool().n_cached() == 1);
  bench.commit(b);
  CHECK(KvBench::blocks(b) == Ids{0});
  CHECK(bench.kv.pool().n_cached() == 0);
  CHECK(bench.free_list() == Ids{1, 2, 3});
}

TEST_CASE("prompts that part in the second block are merged in the first alone") {
  KvBench bench(KvBench::config(8, 4));
  Sequence &a = bench.add({1, 2, 3, 4, 5, 6, 7, 8}), &b = bench.add({1, 2, 3, 4, 5, 6, 7, 9});
  REQUIRE(bench.plan(a, 8));
  REQUIRE(bench.plan(b, 8));
  bench.commit(a);
  bench.commit(b);
  CHECK(bench.kv.n_merged() == 1);
  CHECK(KvBench::blocks(b) == Ids{0, 3});
  CHECK(bench.kv.pool().hashed(BlockId(3)));
}

TEST_CASE("a fork holds every block of its parent; who writes the partial one first copies it, the last one need not") {
  KvBench bench(KvBench::config(8, 8));  // prompt 20: two full blocks and a partial one
  Sequence &parent = bench.add(counting(20)), &child = bench.add(counting(20));
  REQUIRE(bench.plan(parent, 20));
  bench.kv.fork(parent, child, 20);
  child.n_computed = 20;
  CHECK(bench.kv.pool().n_held() == 3);
  CHECK(KvBench::blocks(child) == Ids{0, 1, 2});
  bench.newest_launched = 1;
  const auto launched = parent.blocks.span();
  CHECK(bench.kv.growth(parent, 21) == 1);
  REQUIRE(bench.plan(parent, 21));
  REQUIRE(bench.copies.size() == 1);
  CHECK(bench.copies[0].from == BlockId(2));
  CHECK(bench.copies[0].to == BlockId(3));
  CHECK(KvBench::blocks(parent) == Ids{0, 1, 3});
  CHECK(KvBench::ids(launched) == Ids{0, 1, 2});
  CHECK(bench.kv.growth(child, 21) == 0);
  REQUIRE(bench.plan(child, 21));
  CHECK(bench.copies.size() == 1);
  CHECK(KvBench::blocks(child) == Ids{0, 1, 2});
  CHECK(bench.kv.pool().n_held() == 4);
}

TEST_CASE("a fork at the end of a block copies nothing") {
  KvBench bench(KvBench::config(8, 8));
  Sequence &parent = bench.add(counting(16)), &child = bench.add(counting(16));
  REQUIRE(bench.plan(parent, 16));
  bench.kv.fork(parent, child, 16);
  child.n_computed = 16;
  REQUIRE(bench.plan(parent, 17));
  REQUIRE(bench.plan(child, 17));
  CHECK(bench.copies.empty());
  CHECK(KvBench::blocks(parent) == Ids{0, 1, 2});
  CHECK(KvBench::blocks(child) == Ids{0, 1, 3});
}

TEST_CASE("growing counts the copy: with one block too few it changes nothing") {
  KvBench bench(KvBench::config(4, 4));
  Sequence &parent = bench.add(counting(6)), &child = bench.add(counting(6)), &other = bench.add(counting(4, 50));
  REQUIRE(bench.plan(parent, 6));
  bench.kv.fork(parent, child, 6);
  child.n_computed = 6;
  REQUIRE(bench.plan(other, 4));
  CHECK(bench.kv.growth(child, 9) == 2);  // one to copy into, one more
  CHECK_FALSE(bench.plan(child, 9));
  CHECK(bench.copies.empty());
  CHECK(KvBench::blocks(child) == Ids{0, 1});
  CHECK(bench.free_list() == Ids{3});
  CHECK(bench.kv.growth(child, 6) == 0);  // no row, no write
  REQUIRE(bench.plan(child, 8));
  CHECK(KvBench::blocks(child) == Ids{0, 3});
  CHECK(bench.free_list() == Ids{});
  CHECK_FALSE(bench.plan(parent, 9));  // the block is its own again; one is missing
  REQUIRE(bench.plan(parent, 8));
  CHECK(bench.copies.size() == 1);
}

TEST_CASE("a fork that has to compute rows again writes into no block that the cache knows") {
  KvBench bench(KvBench::config(8, 4));
  Sequence &parent = bench.add(counting(4)), &child = bench.add(counting(4));
  REQUIRE(bench.plan(parent, 4));
  bench.kv.fork(parent, child, 3);
  bench.commit(parent);
  bench.end(parent);
  CHECK(bench.kv.pool().references(BlockId(0)) == 1);
  child.tokens[3] = 99;
  child.n_computed = child.n_committed = 3;
  CHECK(bench.kv.growth(child, 4) == 1);
  bench.compute(child);
  REQUIRE(bench.copies.size() == 1);
  CHECK(bench.copies[0].from == BlockId(0));
  CHECK(KvBench::blocks(child) == Ids{1});
  Sequence& other = bench.add(counting(5));
  CHECK(bench.admit(other) == 1);
  CHECK(KvBench::blocks(other) == Ids{0});
}

TEST_CASE("forks share their blocks once, then merge what they generate alike") {
  KvBench bench(KvBench::config(8, 4));
  Sequence &parent = bench.add(counting(8)), &child = bench.add(counting(8));
  REQUIRE(bench.plan(parent, 8));
  bench.kv.fork(parent, child, 8);
  child.n_computed = 8;
  bench.commit(parent);
  bench.commit(child);
  CHECK(bench.kv.n_merged() == 0);
  CHECK(child.chain.n_confirmed == 2);
  CHECK(child.chain.content == parent.chain.content);
  for (Sequence* s : {&parent, &child}) {
    s->tokens.insert(s->tokens.end(), {90, 91, 92, 93});
    bench.compute(*s);
  }
  CHECK(bench.kv.n_merged() == 1);
  CHECK(KvBench::blocks(child) == Ids{0, 1, 2});
  CHECK(bench.kv.pool().n_held() == 3);
}

TEST_CASE("a fork of a committed prompt goes on from its contents: what it generates is found under the whole prompt") {
  KvBench bench(KvBench::config(8, 4));
  Sequence &parent = bench.add(counting(8)), &child = bench.add(counting(12));
  bench.compute(parent);
  bench.kv.fork(parent, child, 8);
  child.n_computed = child.n_committed = 8;
  bench.compute(child);
  CHECK(bench.kv.cached_tokens(counting(13), child.domain) == 12);
  std::vector<TokenId> other = counting(13);
  other[0] = 99;
  CHECK(bench.kv.cached_tokens(other, child.domain) == 0);
}

TEST_CASE("a block that is also held by a fork is not given up for an equal one") {
  KvBench bench(KvBench::config(8, 4));
  Sequence &first = bench.add(counting(4)), &parent = bench.add(counting(4)), &child = bench.add(counting(4));
  REQUIRE(bench.plan(first, 4));
  REQUIRE(bench.plan(parent, 4));
  bench.kv.fork(parent, child, 4);
  child.n_computed = 4;
  for (Sequence* s : {&first, &parent, &child}) bench.commit(*s);
  CHECK(bench.kv.n_merged() == 0);
  CHECK(KvBench::blocks(parent) == Ids{1});
  CHECK(KvBench::blocks(child) == Ids{1});
  CHECK(child.chain.content == first.chain.content);
  bench.end(parent);
  bench.end(child);
  CHECK(bench.free_list().front() == 1);  // it never had a hash
}

TEST_CASE("forks agree on a block's content although their twin was evicted between their commits") {
  KvBench bench(KvBench::config(6, 4));
  Sequence &twin = bench.add(counting(8)), &parent = bench.add(counting(8)), &child = bench.add(counting(8));
  REQUIRE(bench.plan(twin, 8));
  REQUIRE(bench.plan(parent, 8));
  bench.kv.fork(parent, child, 8);
  bench.commit(twin);
  bench.end(twin);
  parent.n_computed = 4;
  bench.commit(parent);  // learns the twin's content for its first block
  Sequence& other = bench.add(counting(16, 50));
  REQUIRE(bench.plan(other, 16));  // evicts the twin
  child.n_computed = 4;
  bench.commit(child);  // so the first block enters now
  parent.n_computed = child.n_computed = 8;
  bench.commit(parent);
  bench.commit(child);
  CHECK(child.chain.n_confirmed == 2);
  CHECK(child.chain.content == parent.chain.content);
  CHECK(bench.kv.pool().hashed(BlockId(2)));
  CHECK(bench.kv.pool().hashed(BlockId(3)));
}

TEST_CASE("cached_tokens says what a sequence would find, in its domain, and changes nothing") {
  KvBench bench(KvBench::config(8, 4));
  const auto prompt = counting(12);
  Sequence& a = bench.add(prompt);
  const auto tokens = [&](std::vector<TokenId> p, const Sequence& s) { return bench.kv.cached_tokens(p, s.domain); };
  CHECK(tokens(prompt, a) == 0);
  bench.compute(a);
  bench.end(a);
  const Ids before = bench.free_list();
  CHECK(tokens(prompt, a) == 8);  // the last token is always computed
  CHECK(tokens(counting(13), a) == 12);
  CHECK(tokens(counting(7), a) == 4);
  CHECK(tokens(counting(4), a) == 0);
  CHECK(tokens({}, a) == 0);
  CHECK(tokens({0, 1, 2, 3, 4, 5, 6, 99, 8, 9, 10, 11, 12}, a) == 4);
  Sequence &b = bench.add(counting(13)), &salted = bench.add(counting(13), "salt");
  CHECK(tokens(counting(13), salted) == 0);
  CHECK(bench.free_list() == before);
  CHECK(bench.admit(b) == 3);

  Config off = KvBench::config(8, 4);
  off.enable_prefix_caching = false;
  KvBench plain(off);
  Sequence& c = plain.add(prompt);
  plain.compute(c);
  CHECK(plain.kv.cached_tokens(prompt, c.domain) == 0);
}

TEST_CASE("reset forgets every content, but not while a block is held") {
  KvBench bench(KvBench::config(6, 4));
  Sequence &a = bench.add(counting(12)), &b = bench.add(counting(13));
  bench.compute(a);
  CHECK_FALSE(bench.kv.reset());
  CHECK(bench.kv.cached_tokens(b.tokens, b.domain) == 12);
  bench.end(a);
  CHECK(bench.kv.pool().n_cached() == 3);
  CHECK(bench.kv.reset());
  CHECK(bench.kv.pool().n_cached() == 0);
  CHECK(bench.kv.pool().n_free() == 6);
  CHECK(bench.admit(b) == 0);
  bench.compute(b);
  bench.end(b);
  CHECK(bench.admit(a) == 2);  // computed again, found again: with the chain that it kept
}

TEST_CASE("residency is observed when a content is evicted, with the hits on it; dropping everything is no eviction") {
  Config config = KvBench::config(2, 4);
  config.residency_share = 1;
  KvBench bench(config);
  const auto at = [&](int t) { bench.now = MonotonicTime{} + std::chrono::seconds(t); };
  Sequence &a = bench.add(counting(4)), &b = bench.add(counting(5)), &c = bench.add(counting(8, 50));
  at(10);
  bench.compute(a);
  bench.end(a);
  at(12);
  CHECK(bench.admit(b) == 1);
  at(13);
  bench.compute(b);
  bench.end(b);  // its second block never had a hash
  CHECK(bench.kv.residency().take().empty());
  at(20);
  bench.compute(c);
  const auto seen = bench.kv.residency().take();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].lifetime == 10);
  CHECK(seen[0].idle == 8);
  bench.end(c);
  CHECK(bench.kv.reset());
  at(30);
  bench.compute(a);
  CHECK(bench.kv.residency().take().empty());
}

}  // namespace
}  // namespace heddle::sched
