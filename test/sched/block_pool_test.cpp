#include "sched/block_pool.h"

#include <doctest/doctest.h>

#include <deque>
#include <random>

namespace heddle::sched {
namespace {

std::vector<uint32_t> free_list(const BlockPool& pool) {
  std::vector<uint32_t> ids;
  for (const BlockId id : pool.free_list()) ids.push_back(id.value);
  return ids;
}
using Ids = std::vector<uint32_t>;

TEST_CASE("a new pool gives its blocks in the order of their ids") {
  BlockPool pool(3);
  CHECK(free_list(pool) == Ids{0, 1, 2});
  CHECK(pool.allocate() == BlockId(0));
  CHECK(pool.allocate() == BlockId(1));
  CHECK(free_list(pool) == Ids{2});
  CHECK(pool.n_held() == 2);
}

TEST_CASE("a released block without a hash is the next to be taken, one with a hash the last") {
  BlockPool pool(4);
  const BlockId plain = pool.allocate(), hashed = pool.allocate();
  pool.set_hashed(hashed, true);
  pool.release(hashed);
  pool.release(plain);
  CHECK(free_list(pool) == Ids{0, 2, 3, 1});
  CHECK(pool.n_cached() == 1);
  CHECK(pool.allocate() == plain);
}

TEST_CASE("a block is free only when its last reference is gone") {
  BlockPool pool(2);
  const BlockId id = pool.allocate();
  pool.touch(id);
  pool.release(id);
  CHECK(pool.references(id) == 1);
  CHECK(pool.n_free() == 1);
  pool.release(id);
  CHECK(pool.n_free() == 2);
}

TEST_CASE("a touched block leaves the free list and keeps its hash") {
  BlockPool pool(3);
  const BlockId id = pool.allocate();
  pool.set_hashed(id, true);
  pool.release(id);
  CHECK(pool.n_cached() == 1);
  pool.touch(id);
  CHECK(free_list(pool) == Ids{1, 2});
  CHECK(pool.n_cached() == 0);
  CHECK(pool.hashed(id));
}

TEST_CASE("forgetting the hashes keeps the order of the free list, and the next release goes to the front") {
  BlockPool pool(4);
  const BlockId a = pool.allocate(), b = pool.allocate();
  pool.set_hashed(a, true);
  pool.set_hashed(b, true);
  pool.release(b);
  pool.release(a);
  CHECK(pool.n_cached() == 2);
  pool.forget_hashes();
  CHECK(pool.n_cached() == 0);
  CHECK_FALSE(pool.hashed(a));
  CHECK(free_list(pool) == Ids{2, 3, 1, 0});
  pool.touch(a);
  pool.release(a);
  CHECK(free_list(pool) == Ids{0, 2, 3, 1});
}

TEST_CASE("after any sequence of calls the free list, the counts and the references agree with a plain model") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr uint32_t n = 13;
  BlockPool pool(n);
  std::deque<uint32_t> list;  // the model: the free list and the references, by the book
  for (uint32_t i = 0; i < n; ++i) list.push_back(i);
  std::vector<uint32_t> references(n);
  std::vector<bool> hashed(n);
  for (int step = 0; step < 5000; ++step) {
    const auto id = static_cast<uint32_t>(random() % n);
    switch (random() % 4) {
      case 0:
        if (list.empty()) break;
        CHECK(pool.allocate().value == list.front());
        references[list.front()] = 1;
        if (hashed[list.front()]) pool.set_hashed(BlockId(list.front()), false);
        hashed[list.front()] = false;
        list.pop_front();
        break;
      case 1:
        if (references[id] == 0) list.erase(std::find(list.begin(), list.end(), id));
        ++references[id];
        pool.touch(BlockId(id));
        break;
      case 2:
        if (references[id] == 0) break;
        pool.release(BlockId(id));
        if (--references[id] > 0) break;
        if (hashed[id])
          list.push_back(id);
        else
          list.push_front(id);
        break;
      default:
        if (references[id] == 0) break;
        hashed[id] = true;
        pool.set_hashed(BlockId(id), true);
    }
    REQUIRE(free_list(pool) == Ids(list.begin(), list.end()));
    REQUIRE(pool.n_free() == list.size());
    REQUIRE(pool.n_cached() == std::count_if(list.begin(), list.end(), [&](uint32_t i) { return hashed[i]; }));
    for (uint32_t i = 0; i < n; ++i) REQUIRE(pool.references(BlockId(i)) == references[i]);
  }
}

}  // namespace
}  // namespace heddle::sched
