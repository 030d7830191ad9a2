#include "engine/wave.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace heddle::engine {
namespace {
using Agreement = Wave::Agreement;

TEST_CASE("wave: 3 steps of work at interval 4 bring both counters to 4, one wave complete, wave 1, counters 0") {
  Wave wave(2, 4);
  CHECK_FALSE(wave.running());
  CHECK_FALSE(wave.may_step(0));
  CHECK(wave.arrive(0) == 0);
  CHECK(wave.running());
  for (int i = 0; i < 4; ++i) {  // three with rows and one without; its peer's four without
    REQUIRE(wave.may_step(0));
    wave.count_step(0);
    REQUIRE(wave.may_step(1));
    wave.count_step(1);
  }
  CHECK(wave.step_counter(0) == 4);
  CHECK(wave.step_counter(1) == 4);
  CHECK_FALSE(wave.may_step(0));
  CHECK_FALSE(wave.may_step(1));
  CHECK(wave.report(1, false) == Agreement::open);
  CHECK(wave.n_complete() == 0);
  CHECK(wave.report(0, false) == Agreement::complete);
  CHECK(wave.n_complete() == 1);
  CHECK(wave.current_wave() == 1);
  CHECK_FALSE(wave.running());
  CHECK(wave.step_counter(0) == 0);
  CHECK(wave.step_counter(1) == 0);
}

TEST_CASE("wave: an arrival stamped with wave 0 while paused after it restarts with wave 1") {
  Wave wave(2, 1);
  wave.arrive(0);
  for (uint32_t rank : {0u, 1u}) {
    wave.count_step(rank);
    wave.report(rank, false);
  }
  REQUIRE(wave.current_wave() == 1);
  CHECK_FALSE(wave.running());
  CHECK(wave.arrive(0) == 1);
  CHECK(wave.running());
  CHECK(wave.arrive(1) == 1);  // while it runs, nothing restarts
  CHECK(wave.n_complete() == 1);
}

TEST_CASE("wave: somebody unfinished at the barrier gives everybody another interval and no more") {
  Wave wave(2, 4);
  wave.arrive(0);
  for (int i = 0; i < 4; ++i) wave.count_step(0);
  CHECK_FALSE(wave.may_step(0));  // its peer is behind, and nobody runs ahead
  CHECK(wave.report(0, true) == Agreement::open);
  for (int i = 0; i < 4; ++i) wave.count_step(1);
  CHECK(wave.report(1, false) == Agreement::go_on);
  CHECK(wave.running());
  CHECK(wave.current_wave() == 0);
  for (int i = 0; i < 4; ++i) wave.count_step(0);
  CHECK(wave.step_counter(0) == 8);
  CHECK_FALSE(wave.may_step(0));
  CHECK(wave.may_step(1));
}

TEST_CASE("wave: a report is taken again when work comes while the others are still to arrive") {
  Wave wave(2, 1);
  wave.arrive(0);
  wave.count_step(0);
  CHECK(wave.report(0, false) == Agreement::open);
  CHECK(wave.report(0, true) == Agreement::open);
  wave.count_step(1);
  CHECK(wave.report(1, false) == Agreement::go_on);
}

TEST_CASE("wave: nobody waits for an engine that left") {
  Wave wave(3, 2);
  wave.arrive(0);
  for (uint32_t rank : {0u, 1u}) {
    wave.count_step(rank);
    wave.count_step(rank);
    CHECK(wave.report(rank, rank == 1) == Agreement::open);
  }
  CHECK(wave.leave(2) == Agreement::go_on);
  CHECK_FALSE(wave.may_step(2));
  for (uint32_t rank : {0u, 1u}) {
    wave.count_step(rank);
    wave.count_step(rank);
    wave.report(rank, false);
  }
  CHECK(wave.n_complete() == 1);
  CHECK(wave.leave(1) == Agreement::open);  // paused: nothing to agree on
  wave.arrive(1);
  wave.count_step(0);
  wave.count_step(0);
  CHECK(wave.report(0, false) == Agreement::complete);
}

TEST_CASE("wave: in any order of steps, counters are never further apart than the interval and end equal") {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
    const uint32_t n = 1 + below(5), interval = 1 + below(8);
    std::vector<uint32_t> work(n);
    uint32_t most = 0;
    for (uint32_t& w : work) most = std::max(most, w = below(40));
    Wave wave(n, interval);
    wave.arrive(0);
    std::vector<uint32_t> steps(n);
    while (wave.running()) {
      const uint32_t rank = below(n);
      if (wave.may_step(rank)) {
        wave.count_step(rank);
        ++steps[rank];
      } else {
        wave.report(rank, steps[rank] < work[rank]);
      }
      const auto [least, furthest] = std::minmax_element(steps.begin(), steps.end());
      REQUIRE(*furthest <= *least + interval);
    }
    const uint32_t expected = most == 0 ? interval : (most + interval - 1) / interval * interval;
    for (uint32_t s : steps) CHECK(s == expected);
    CHECK(wave.n_complete() == 1);
  }
}

}  // namespace
}  // namespace heddle::engine
