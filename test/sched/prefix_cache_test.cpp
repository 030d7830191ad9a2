#include "sched/prefix_cache.h"

#include <set>

#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

using Domain = std::shared_ptr<const PrefixDomain>;
Domain domain(std::string model, std::string salt) {
  return std::make_shared<const PrefixDomain>(PrefixDomain{std::move(model), std::move(salt)});
}
Hash128 always_equal(const Hash128&, std::span<const TokenId>) { return {42, 42}; }

TEST_CASE("a hash depends on seed, every domain field, every token and every block before") {
  const auto key = [](const Hash128& h) { return std::pair(h.low, h.high); };
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const uint64_t seed : {0u, 1u})
    for (const char* model : {"", "x", "xy"})
      for (const char* salt : {"", "x", "y", "xy"}) CHECK(seen.insert(key(hash_domain(seed, {model, salt}))).second);
  const Hash128 root = hash_domain(0, {"m", "s"});
  std::vector<TokenId> tokens(16, 7);
  const Hash128 first = hash_block(root, tokens);
  CHECK(seen.insert(key(first)).second);
  CHECK(seen.insert(key(hash_block(first, tokens))).second);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] ^= 1;
    CHECK(seen.insert(key(hash_block(root, tokens))).second);
    tokens[i] ^= 1;
  }
  CHECK(seen.insert(key(hash_block(root, std::span(tokens).first(15)))).second);
  CHECK(hash_block(root, tokens) == first);
}

TEST_CASE("equal text in different fields of a domain gives different domains") {
  CHECK(hash_domain(0, {"ab", ""}) != hash_domain(0, {"a", "b"}));
  CHECK(hash_domain(0, {"", "ab"}) != hash_domain(0, {"ab", ""}));
  CHECK(hash_domain(0, {"", "ab", ""}) != hash_domain(0, {"", "", "ab"}));
  CHECK(hash_domain(0, {"", "a", "b"}) != hash_domain(0, {"", "ab", ""}));
  CHECK(PrefixDomain{"m", "s", "a"} != PrefixDomain{"m", "s", "b"});
  CHECK(hash_domain(0, {std::string("a\0", 2), ""}) != hash_domain(0, {"a", ""}));
}

TEST_CASE(
    "hash-is-not-identity: with every hash equal, only equal tokens after equal tokens in an equal domain are found") {
  PrefixCache cache(8, 2);
  const Domain plain = domain("m", ""), salted = domain("m", "s"), plain_again = domain("m", "");
  const std::vector<TokenId> ab = {1, 2}, cd = {3, 4};
  const Hash128 same{42, 42};
  const auto key = [&](ContentId parent, const Domain& d, const std::vector<TokenId>& tokens) {
    return PrefixCache::Key{same, parent, &d, tokens};
  };
  const ContentId first = cache.insert(BlockId(0), key(0, plain, ab)).content;
  const ContentId other = cache.insert(BlockId(1), key(0, plain, cd)).content;
  const ContentId second = cache.insert(BlockId(2), key(first, plain, cd)).content;
  CHECK(first != other);
  CHECK(second != other);
  CHECK(cache.find(key(0, plain_again, ab))->block == BlockId(0));
  CHECK(cache.find(key(0, plain, cd))->block == BlockId(1));
  CHECK(cache.find(key(first, plain, cd))->block == BlockId(2));
  CHECK_FALSE(cache.find(key(other, plain, cd)));  // equal tokens and hash, another parent
  CHECK_FALSE(cache.find(key(0, salted, ab)));
  cache.erase(BlockId(1));
  CHECK_FALSE(cache.find(key(0, plain, cd)));
  CHECK(cache.find(key(first, plain, cd))->block == BlockId(2));
  CHECK(cache.size() == 2);
}

TEST_CASE("a second block with a content that is there stays out and learns its content") {
  PrefixCache cache(4, 2);
  const Domain d = domain("m", "");
  const std::vector<TokenId> tokens = {1, 2};
  const PrefixCache::Key key{hash_block({}, tokens), 0, &d, tokens};
  const auto first = cache.insert(BlockId(0), key);
  const auto twin = cache.insert(BlockId(3), key);
  CHECK(first.inserted);
  CHECK_FALSE(twin.inserted);
  CHECK(twin.content == first.content);
  CHECK(first.block == BlockId(0));
  CHECK(twin.block == BlockId(0));
  CHECK(cache.content(BlockId(0)) == first.content);
  CHECK(cache.content(BlockId(3)) == 0);
  CHECK(cache.size() == 1);
}

TEST_CASE("a cleared index finds nothing, and what enters again is a new content") {
  PrefixCache cache(4, 2);
  const Domain d = domain("m", "");
  const std::vector<TokenId> tokens = {1, 2};
  const PrefixCache::Key key{hash_block({}, tokens), 0, &d, tokens};
  const ContentId before = cache.insert(BlockId(1), key).content;
  CHECK(d.use_count() == 2);
  cache.clear();
  CHECK(d.use_count() == 1);
  CHECK(cache.size() == 0);
  CHECK_FALSE(cache.find(key));
  const auto again = cache.insert(BlockId(1), key);
  CHECK(again.inserted);
  CHECK(again.content != before);
}

TEST_CASE("a forced hash collision does not share: each sequence gets blocks of its own") {
  SchedBench bench(SchedBench::config(32, 4), always_equal);
  const auto rows = [&](char name, std::vector<TokenId> prompt, std::string salt = "") {
    bench.add(name, std::move(prompt), 1, std::move(salt));
    return bench.step();
  };
  CHECK(rows('A', {1, 1, 1, 1, 2, 2, 2, 2, 9}) == "A9");
  CHECK(rows('B', {3, 3, 3, 3, 2, 2, 2, 2, 9}) ==
        "B9");  // its second block equals A's in hash and tokens, not in parent
  CHECK(rows('C', {1, 1, 1, 1, 2, 2, 2, 2, 9}, "salt") == "C9");
  CHECK(rows('D', {3, 3, 3, 3, 2, 2, 2, 2, 9}) == "D1");
  CHECK(rows('E', {1, 1, 1, 1, 2, 2, 2, 2, 9}, "salt") == "E1");
  CHECK(rows('F', {1, 1, 1, 1, 3, 2, 2, 2, 9}) == "F5");
}

TEST_CASE("an evicted content that is computed anew does not revive what was under it before") {
  SchedBench bench(SchedBench::config(4, 4));
  bench.add('A', {1, 1, 1, 1, 2, 2, 2, 2, 9}, 1);
  CHECK(bench.step() == "A9");
  bench.add('B', 13, 1);  // takes all four blocks
  CHECK(bench.step() == "B13");
  bench.add('C', {1, 1, 1, 1, 2, 2, 2, 2, 9}, 1);
  CHECK(bench.step() == "C9");
}

}  // namespace
}  // namespace heddle::sched
