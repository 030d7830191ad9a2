#include "sched/residency.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace heddle::sched {
namespace {

MonotonicTime at(double t) {
  return MonotonicTime{} + std::chrono::duration_cast<Monotonic::duration>(std::chrono::duration<double>(t));
}
using Gaps = std::vector<double>;
const BlockId block(0);

TEST_CASE("kv_residency: lifetime and idle time end at the eviction, gaps are those between the last four hits") {
  ResidencySampler sampler(1, 1, 0);
  sampler.on_allocate(block, at(10));
  for (const double t : {12.0, 15.0, 15.5, 30.0, 31.0}) sampler.on_hit(block, at(t));
  CHECK(sampler.take().empty());
  sampler.on_evict(block, at(91));
  const auto seen = sampler.take();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].lifetime == 81);
  CHECK(seen[0].idle == 60);
  CHECK(seen[0].reuse_gaps == Gaps{.5, 14.5, 1.0});
  CHECK(sampler.take().empty());
}

TEST_CASE("kv_residency: a block that was never hit was idle all its life and has no gap; one hit makes none either") {
  ResidencySampler sampler(2, 1, 0);
  sampler.on_allocate(BlockId(0), at(1));
  sampler.on_allocate(BlockId(1), at(1));
  sampler.on_hit(BlockId(1), at(3));
  sampler.on_evict(BlockId(0), at(8));
  sampler.on_evict(BlockId(1), at(8));
  const auto seen = sampler.take();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].lifetime == 7);
  CHECK(seen[0].idle == 7);
  CHECK(seen[0].reuse_gaps == Gaps{});
  CHECK(seen[1].lifetime == 7);
  CHECK(seen[1].idle == 5);
  CHECK(seen[1].reuse_gaps == Gaps{});
}

TEST_CASE("kv_residency: a block taken again without an eviction is no event, and its former hits are forgotten") {
  ResidencySampler sampler(1, 1, 0);
  sampler.on_allocate(block, at(1));
  sampler.on_hit(block, at(2));
  sampler.on_hit(block, at(3));
  sampler.on_allocate(block, at(10));
  CHECK(sampler.take().empty());
  sampler.on_evict(block, at(12));
  const auto seen = sampler.take();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].lifetime == 2);
  CHECK(seen[0].idle == 2);
  CHECK(seen[0].reuse_gaps == Gaps{});
}

TEST_CASE("a dropped cache gives no observations, later evictions do again") {
  ResidencySampler sampler(1, 1, 0);
  sampler.on_allocate(block, at(1));
  sampler.on_reset();
  sampler.on_evict(block, at(2));
  CHECK(sampler.take().empty());
  sampler.on_allocate(block, at(3));
  sampler.on_evict(block, at(4));
  CHECK(sampler.take().size() == 1);
}

TEST_CASE("the share of the blocks is watched, the same ones for the same seed") {
  constexpr uint32_t n = 4000;
  const auto watched = [](double share, uint64_t seed) {
    ResidencySampler sampler(n, share, seed);
    std::vector<bool> out(n);
    for (uint32_t i = 0; i < n; ++i) {
      sampler.on_allocate(BlockId(i), at(1));
      sampler.on_hit(BlockId(i), at(2));
      sampler.on_evict(BlockId(i), at(3));
      out[i] = !sampler.take().empty();
    }
    return out;
  };
  const auto count = [](const std::vector<bool>& v) { return std::count(v.begin(), v.end(), true); };
  CHECK(count(watched(0, 1)) == 0);
  CHECK(count(watched(1, 1)) == n);
  const auto quarter = watched(.25, 1);
  CHECK(count(quarter) > n / 4 - 200);  // 7 standard deviations
  CHECK(count(quarter) < n / 4 + 200);
  CHECK(quarter == watched(.25, 1));
  CHECK(quarter != watched(.25, 2));
}

}  // namespace
}  // namespace heddle::sched
