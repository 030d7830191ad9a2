#include "engine/balance.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace heddle::engine {
namespace {

Candidate with(uint32_t waiting, uint32_t running, double kv_usage = 0, uint32_t cached = 0) {
  return {.own_in_flight = waiting + running,
          .running = running,
          .waiting = waiting,
          .kv_usage = kv_usage,
          .cached_tokens = cached};
}

TEST_CASE("balance_score: the worked numbers give 4 and 7, and engine 0") {
  const std::vector<Candidate> engines = {
      {.own_in_flight = 4, .running = 4, .waiting = 0, .kv_usage = .9},
      {.own_in_flight = 4, .running = 2, .waiting = 2, .kv_usage = .75},
  };
  CHECK(score(engines[0]) == 4.0);
  CHECK(score(engines[1]) == 7.0);
  CHECK(choose(engines, 0) == 0);
  CHECK(choose(engines, 1) == 0);
}

TEST_CASE("balance_score: what several clients have in flight counts for more than a late report") {
  CHECK(score({.own_in_flight = 3, .running = 2}, 1) == 3.0);
  CHECK(score({.own_in_flight = 3, .running = 2}, 4) == 12.0);
  CHECK(score({.own_in_flight = 0, .running = 2, .waiting = 3}) == 5.0);
  CHECK(score({.own_in_flight = 0, .running = 0, .waiting = 2, .kv_usage = .5}) == 2.0);
  CHECK(score({.own_in_flight = 0, .running = 0, .waiting = 2, .kv_usage = 1}) == 8.0);
}

TEST_CASE("scan_rotates: equals take turns with the start of the scan") {
  const std::vector<Candidate> engines(3);
  for (uint32_t first = 0; first < 7; ++first) CHECK(choose(engines, first) == first % 3);
}

TEST_CASE("rank_overrides: the rank asked for is taken whatever its load, its prefix and its health") {
  std::vector<Candidate> engines = {with(0, 0, 0, 160), with(50, 100, 1)};
  engines[1].healthy = false;
  CHECK(choose(engines, 0) == 0);
  CHECK(choose(engines, 0, 1) == 1);
}

TEST_CASE("sticky_prefix: the longest cached prefix wins unless its engine is overloaded") {
  struct Row {
    const char* what;
    std::vector<Candidate> engines;
    uint32_t chosen;
  };
  const std::vector<Row> rows = {
      {"a busier engine with one block wins over an idle one", {with(0, 0), with(0, 3, 0, 16)}, 1},
      {"the longer of two prefixes wins", {with(0, 1, 0, 32), with(0, 4, 0, 48)}, 1},
      {"of equal prefixes the smaller score", {with(0, 5, 0, 32), with(0, 4, 0, 32)}, 1},
      {"no prefix anywhere: the smaller score", {with(0, 5), with(0, 4)}, 1},
      {"somebody waits there, nobody at the best", {with(0, 9), with(1, 9, 0, 160)}, 0},
      {"somebody waits everywhere: the prefix still counts", {with(1, 9), with(2, 9, 0, 160)}, 1},
      {"4 above an idle engine is not too much", {with(0, 0), with(0, 4, 0, 16)}, 1},
      {"5 above an idle engine is", {with(0, 0), with(0, 5, 0, 16)}, 0},
      {"1.5 times the best + 4 is not too much", {with(0, 20), with(0, 34, 0, 16)}, 1},
      {"one more is", {with(0, 20), with(0, 35, 0, 16)}, 0},
      {"the longest is overloaded: the second longest", {with(0, 0), with(0, 9, 0, 64), with(0, 2, 0, 16)}, 2},
      {"the best one's own queue does not count against it", {with(3, 1, 0, 16), with(2, 9)}, 0},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    for (uint32_t first = 0; first < row.engines.size(); ++first) CHECK(choose(row.engines, first) == row.chosen);
  }
}

TEST_CASE("a sick engine gets nothing while another is well") {
  std::vector<Candidate> engines = {with(0, 9), with(0, 0, 0, 160)};
  engines[1].healthy = false;
  CHECK(choose(engines, 1) == 0);
  engines[0].healthy = false;
  CHECK(choose(engines, 0) == 1);  // all are sick: the engine itself says no
}

TEST_CASE(
    "balance_properties: no worse than the best by more than prefixes may cost, and no longer prefix passed over") {
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    std::vector<Candidate> engines(1 + below(6));
    for (Candidate& c : engines) {
      c = with(below(2) == 0 ? 0 : below(20), below(40), below(101) / 100.0, 16 * (below(2) == 0 ? 0 : below(9)));
      c.healthy = below(8) != 0;
    }
    const uint32_t first = below(10);
    const uint32_t got = choose(engines, first);
    REQUIRE(got < engines.size());
    CHECK(choose(engines, first) == got);
    const bool any = std::any_of(engines.begin(), engines.end(), [](const auto& c) { return c.healthy; });
    const auto counts = [&](const Candidate& c) { return c.healthy || !any; };
    CHECK(counts(engines[got]));
    double best = 1e9;
    for (const Candidate& c : engines)
      if (counts(c)) best = std::min(best, score(c));
    CHECK(score(engines[got]) <= 1.5 * best + 4);
    for (const Candidate& c : engines) {
      if (!counts(c)) continue;
      // Whoever has no prefix to offer is chosen for its score alone.
      if (engines[got].cached_tokens == 0 && c.cached_tokens == 0) CHECK(score(engines[got]) <= score(c));
      // A longer prefix is passed over only where somebody waits or the load is too far from the best.
      if (c.cached_tokens > engines[got].cached_tokens) {
        const bool too_far = score(c) > 1.5 * best + 4;
        CHECK((too_far || c.waiting > 0));
      }
    }
  }
}

TEST_CASE("a prompt that everybody shares keeps the engines within three requests to two, and four") {
  std::vector<Candidate> engines(2);
  engines[0].cached_tokens = 64;  // nothing ends, and the other engine never gets to cache it
  for (uint32_t i = 0; i < 500; ++i) {
    Candidate& taken = engines[choose(engines, i)];
    ++taken.running;
    ++taken.own_in_flight;
    const auto [low, high] = std::minmax(engines[0].running, engines[1].running);
    CHECK(high <= low * 1.5 + 5);
  }
  CHECK(engines[0].running + engines[1].running == 500);
  CHECK(engines[0].running > engines[1].running);  // the prefix does count
}

}  // namespace
}  // namespace heddle::engine
