#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/group_fixture.h"

namespace heddle::engine {
namespace {

struct LockstepBench : GroupBench {
  explicit LockstepBench(uint32_t interval, uint32_t n = 2, uint32_t depth = 1, Monotonic::duration step_time = {})
      : GroupBench(n, depth) {
    if (step_time.count() > 0) stub.clock = StubOptions::Clock::real;
    stub.step_time = step_time;
    options.lockstep = true;
    options.sync_interval = interval;
    build();
  }
  const Wave& wave() const { return *group->wave(); }
  // Steps with and without rows.
  std::vector<uint64_t> steps() const {
    std::vector<uint64_t> all;
    for (const Snapshot& s : group->snapshots()) all.push_back(s.steps + s.dummy_steps);
    return all;
  }
};

TEST_CASE("wave: at interval 4, 3 steps on engine 0 make engine 1 take dummy steps until both counters are at 4") {
  for (uint32_t depth : {1u, 2u, 3u}) {
    CAPTURE(depth);
    LockstepBench bench(4, 2, depth);
    const auto sink = bench.submit(make_request("a", iota_prompt(4), 3), {.rank = 0});
    uint32_t highest[2] = {0, 0};
    bench.run_until([&] {
      for (uint32_t rank : {0u, 1u}) highest[rank] = std::max(highest[rank], bench.wave().step_counter(rank));
      return bench.wave().n_complete() > 0;
    });
    const std::vector<Snapshot> engines = bench.group->snapshots();
    CHECK(engines[0].steps == 3);
    CHECK(engines[0].dummy_steps == 1);
    CHECK(engines[1].steps == 0);
    CHECK(engines[1].dummy_steps == 4);
    CHECK(bench.runners[1]->n_dummy_steps() == 4);
    CHECK(bench.traces[1]->text("LD") == "D0 D1 D2 D3");
    CHECK(bench.wave().n_complete() == 1);
    CHECK(bench.wave().current_wave() == 1);
    CHECK_FALSE(bench.wave().running());
    CHECK(bench.wave().step_counter(0) == 0);
    CHECK(bench.wave().step_counter(1) == 0);
    CHECK(highest[1] == 4);
    bench.finish();
    CHECK(sink->only().tokens == bench.expected(iota_prompt(4), 3));
    CHECK(bench.wave().n_complete() == 1);  // stopping starts no wave
  }
}

TEST_CASE("wave: work that ends exactly at the interval costs no further one, at any depth") {
  for (uint32_t depth : {1u, 2u, 3u}) {
    CAPTURE(depth);
    // Steps take time, so the idle engine is at the barrier while the last ones are still in flight.
    LockstepBench bench(4, 2, depth, std::chrono::milliseconds(1));
    const auto sink = bench.submit(make_request("a", iota_prompt(4), 4), {.rank = 0});
    bench.run_until([&] { return bench.wave().n_complete() > 0; });
    CHECK(sink->n_ends == 1);
    CHECK(bench.steps() == std::vector<uint64_t>{4, 4});
    bench.finish();
  }
}

TEST_CASE("wave: an arrival stamped with wave 0 while the group is paused after it restarts with wave 1") {
  LockstepBench bench(4);
  bench.submit(make_request("a", iota_prompt(4), 3), {.rank = 0, .wave = 0});
  bench.run_until([&] { return bench.wave().n_complete() == 1; });
  REQUIRE_FALSE(bench.wave().running());
  const auto late = bench.submit(make_request("b", iota_prompt(4), 3), {.rank = 1, .wave = 0});
  CHECK(bench.wave().running());
  CHECK(bench.wave().current_wave() == 1);
  bench.run_until([&] { return bench.wave().n_complete() == 2; });
  CHECK(late->n_ends == 1);
  CHECK(bench.wave().current_wave() == 2);
  CHECK(bench.steps() == std::vector<uint64_t>{8, 8});
  bench.finish();
}

TEST_CASE("lockstep: nobody runs ahead of the group's agreement, and all end with as many steps") {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
    const uint32_t n = 2 + below(3), interval = 1 + below(6);
    LockstepBench bench(interval, n, 1 + below(3));
    std::vector<std::shared_ptr<Recorder>> sinks;
    std::vector<std::vector<TokenId>> prompts;
    int to_come = 20;
    bench.start();
    while (to_come > 0 || bench.wave().running()) {
      if (to_come > 0 && (below(8) == 0 || !bench.wave().running())) {
        --to_come;
        prompts.push_back(iota_prompt(1 + below(40), 1 + static_cast<TokenId>(below(3000))));
        sinks.push_back(bench.submit(make_request(std::to_string(to_come), prompts.back(), 1 + below(12))));
      }
      REQUIRE(bench.io.run_one() == 1);
      uint32_t least = UINT32_MAX, furthest = 0;
      for (uint32_t rank = 0; rank < n; ++rank) {
        least = std::min(least, bench.wave().step_counter(rank));
        furthest = std::max(furthest, bench.wave().step_counter(rank));
      }
      REQUIRE(furthest <= least + interval);
    }
    const std::vector<uint64_t> steps = bench.steps();
    for (uint64_t s : steps) {
      CHECK(s == steps.front());
      CHECK(s % interval == 0);
    }
    bench.finish();
    for (size_t i = 0; i < sinks.size(); ++i) {
      REQUIRE(sinks[i]->n_ends == 1);
      CHECK(sinks[i]->reason() == FinishReason::length);
      const auto& tokens = sinks[i]->only().tokens;
      CHECK(tokens == bench.expected(prompts[i], static_cast<uint32_t>(tokens.size())));
    }
  }
}

TEST_CASE("lockstep: after a stop an engine without work goes on with dummy steps until the wave is complete") {
  LockstepBench bench(4);
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 30), {.rank = 0});
  bench.run_until([&] { return sink->choices.size() == 1; });
  bench.finish();
  CHECK(sink->reason() == FinishReason::length);
  CHECK(bench.steps() == std::vector<uint64_t>{32, 32});
  CHECK(bench.wave().n_complete() == 1);
}

TEST_CASE("lockstep: nobody waits for an engine whose device is lost") {
  GroupBench plain(2);
  plain.options.lockstep = true;
  plain.options.sync_interval = 4;
  plain.stub.fault = [](const sched::StepPlan& plan) -> std::optional<Fault> {
    for (const sched::SeqStep& step : plan.seqs)
      if (step.sequence->tokens.front() == 666) return Fault{.message = "lost", .scope = Fault::Scope::device};
    return std::nullopt;
  };
  const auto well = plain.submit(make_request("well", iota_prompt(4), 30), {.rank = 1});
  const auto doomed = plain.submit(make_request("doomed", iota_prompt(4, 666), 10), {.rank = 0});
  plain.run_until([&] { return well->n_ends == 1; });
  CHECK(doomed->reason() == FinishReason::error);
  CHECK(well->reason() == FinishReason::length);
  CHECK(plain.traces[0]->text("LDF") == "L0 F0");  // nothing is asked of the lost device any more
  plain.finish();
}

TEST_CASE("lockstep: nobody waits for an engine whose loop has ended") {
  LockstepBench bench(4);
  Request request = make_request("d", iota_prompt(4), 3);
  request.deferral = sched::Deferral::grammar;
  const auto sink = bench.submit(request, {.rank = 0});
  bench.run_until([&] { return bench.wave().n_complete() == 1; });
  bench.group->stop();
  while (bench.io.poll_one() > 0) {
  }
  REQUIRE(bench.wave().has_left(1));
  bench.group->ready("d");
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(4), 3));
}

TEST_CASE("lockstep: the group comes to rest before it sleeps, and goes on after it woke") {
  LockstepBench bench(4);
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 30), {.rank = 0});
  bench.run_until([&] { return sink->choices.size() == 1; });
  CHECK(bench.await(bench.group->sleep(SleepLevel::weights, PauseMode::keep)).has_value());
  CHECK_FALSE(bench.wave().running());
  const std::vector<uint64_t> asleep = bench.steps();
  CHECK(asleep[0] == asleep[1]);
  CHECK(sink->n_ends == 0);
  const auto queued = bench.submit(make_request("b", iota_prompt(4, 40), 3), {.rank = 1});
  CHECK_FALSE(bench.wave().running());
  CHECK(bench.await(bench.group->wake_up({})).has_value());
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(4), 30));
  CHECK(queued->only().tokens == bench.expected(iota_prompt(4, 40), 3));
}

TEST_CASE("lockstep: a deferred request keeps nobody stepping, and starts a wave when it is ready") {
  LockstepBench bench(4);
  Request request = make_request("d", iota_prompt(4), 3);
  request.deferral = sched::Deferral::grammar;
  const auto sink = bench.submit(request, {.rank = 0});
  bench.run_until([&] { return bench.wave().n_complete() == 1; });  // its arrival
  CHECK(sink->n_ends == 0);
  bench.group->ready("d");
  bench.run_until([&] { return bench.wave().n_complete() == 2; });
  CHECK(sink->n_ends == 1);
  CHECK(bench.steps() == std::vector<uint64_t>{8, 8});
  bench.finish();
}

TEST_CASE("without lockstep an idle engine takes no step at all") {
  GroupBench bench(2);
  bench.submit(make_request("a", iota_prompt(4), 30), {.rank = 0});
  bench.finish();
  CHECK(bench.group->wave() == nullptr);
  CHECK(bench.runners[1]->n_dummy_steps() == 0);
  CHECK(bench.traces[1]->text("LDW").empty());
}

}  // namespace
}  // namespace heddle::engine
