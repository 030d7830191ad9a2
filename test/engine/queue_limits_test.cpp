#include "engine/queue_limits.h"

#include <doctest/doctest.h>

#include <vector>

namespace heddle::engine {
namespace {

Load busy(uint32_t running, uint32_t waiting, uint64_t queued_tokens = 0) {
  Load load;
  load.running = running;
  load.waiting = waiting;
  load.queued_tokens = load.uncached_tokens = queued_tokens;
  return load;
}

TEST_CASE("queue_limits: no limit refuses nothing") {
  const std::vector<Load> loads = {busy(1000, 100000, 1u << 30)};
  CHECK_FALSE(check_limits({}, loads, 1000, 1u << 30).has_value());
}

TEST_CASE("queue_limits: sequences that wait and that run count, over all engines") {
  const std::vector<Load> loads = {busy(3, 1), busy(2, 0)};
  const QueueLimits limits{.max_num_queued_reqs = 8};
  CHECK_FALSE(check_limits(limits, loads, 2, 10).has_value());
  const auto refusal = check_limits(limits, loads, 3, 10);
  REQUIRE(refusal.has_value());
  CHECK(refusal->limit == QueueLimit::reqs);
  CHECK(refusal->message == "the server is full: 6 sequences wait or run, 3 more would exceed --max-num-queued-reqs 8");
}

TEST_CASE("queue_limits: prompt tokens without a first token count, over all engines") {
  const std::vector<Load> loads = {busy(1, 1, 300), busy(1, 0, 200)};
  const QueueLimits limits{.max_num_queued_tokens = 1000};
  CHECK_FALSE(check_limits(limits, loads, 1, 500).has_value());
  const auto refusal = check_limits(limits, loads, 1, 501);
  REQUIRE(refusal.has_value());
  CHECK(refusal->limit == QueueLimit::tokens);
  CHECK(refusal->message ==
        "the server is full: 500 prompt tokens wait for their first output, 501 more would exceed "
        "--max-num-queued-tokens 1000");
}

TEST_CASE("queue_limits: what could not even enter an empty queue is told so") {
  const std::vector<Load> idle(1);
  const auto wide = check_limits({.max_num_queued_reqs = 2}, idle, 3, 10);
  REQUIRE(wide.has_value());
  CHECK(wide->message.ends_with("--max-num-queued-reqs 2; the request alone is larger than that"));
  const auto large = check_limits({.max_num_queued_tokens = 5}, idle, 1, 6);
  REQUIRE(large.has_value());
  CHECK(large->message.ends_with("--max-num-queued-tokens 5; the request alone is larger than that"));
  // What fills an empty queue to the brim can come in when it is empty.
  const std::vector<Load> loads = {busy(1, 0, 1)};
  CHECK(check_limits({.max_num_queued_reqs = 2}, loads, 2, 10)->message.ends_with("--max-num-queued-reqs 2"));
  CHECK(check_limits({.max_num_queued_tokens = 5}, loads, 1, 5)->message.ends_with("--max-num-queued-tokens 5"));
}

TEST_CASE("retry_after: the queue at the engines' prefill rates, and the first end at the decode rate") {
  const auto load = [](uint64_t uncached, uint32_t soonest_end, double prefill, double decode) {
    return Load{.uncached_tokens = uncached, .soonest_end = soonest_end, .rates = {prefill, decode}};
  };
  struct Row {
    const char* what;
    std::vector<Load> loads;
    uint32_t seconds;
  };
  const std::vector<Row> rows = {
      {"nothing measured", {load(100000, 5000, 0, 0)}, 1},
      {"nothing queued, nothing runs", {load(0, 0, 100, 10)}, 1},
      {"6000 rows at 1000 a second", {load(6000, 0, 1000, 10)}, 6},
      {"fractions round up", {load(6001, 0, 1000, 10)}, 7},
      {"60 tokens to go at 10 a second", {load(0, 60, 1000, 10)}, 6},
      {"both", {load(6000, 60, 1000, 10)}, 12},
      {"two engines compute their queues together", {load(6000, 0, 1000, 10), load(0, 0, 500, 10)}, 4},
      {"the engine where a place is free first", {load(0, 60, 1000, 10), load(0, 20, 1000, 10)}, 2},
      {"an engine without a measured decode rate says nothing", {load(0, 60, 0, 10), load(0, 1, 0, 0)}, 6},
      {"at most ten minutes", {load(1u << 30, 60, 1, 10)}, 600},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(retry_after(row.loads) == row.seconds);
  }
}

TEST_CASE("retry_after: a refusal carries it") {
  const std::vector<Load> loads = {
      {.running = 4, .uncached_tokens = 900, .soonest_end = 20, .rates = {.prefill = 300, .decode = 10}}};
  const auto refusal = check_limits({.max_num_queued_reqs = 4}, loads, 1, 5);
  REQUIRE(refusal.has_value());
  CHECK(refusal->retry_after == 5);
}

}  // namespace
}  // namespace heddle::engine
