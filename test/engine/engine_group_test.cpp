#include "engine/engine_group.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/group_fixture.h"

namespace heddle::engine {
namespace {

std::string name(const char* stem, int i) { return stem + std::to_string(i); }

TEST_CASE("group: requests without a common prefix spread evenly, and give the tokens that one engine gives") {
  GroupBench bench(3);
  std::vector<std::shared_ptr<Recorder>> sinks;
  std::vector<int> per_rank(3);
  for (int i = 0; i < 12; ++i) {
    sinks.push_back(bench.submit(make_request(name("r", i), iota_prompt(20, 1 + 100 * i), 5)));
    ++per_rank[static_cast<size_t>(bench.rank_of(name("r", i)))];
  }
  CHECK(per_rank == std::vector<int>{4, 4, 4});
  bench.finish();
  for (int i = 0; i < 12; ++i)
    CHECK(sinks[static_cast<size_t>(i)]->only().tokens == bench.expected(iota_prompt(20, 1 + 100 * i), 5));
}

TEST_CASE("scan_rotates: idle engines take turns with unlike requests that come one after the other") {
  GroupBench bench(3);
  std::string ranks;
  for (int i = 0; i < 9; ++i) {
    const auto sink = bench.submit(make_request(name("r", i), iota_prompt(20, 1 + 100 * i), 2));
    ranks += std::to_string(bench.rank_of(name("r", i)));
    bench.run_until([&] { return sink->n_ends == 1; });
  }
  CHECK(ranks == "012012012");
  bench.finish();
}

TEST_CASE("sticky_prefix: a repeated prompt goes to the engine that has it cached, though another is idle too") {
  GroupBench bench(3);
  bench.submit(make_request("a", iota_prompt(40), 2));
  bench.submit(make_request("b", iota_prompt(40, 500), 2));
  const int home_a = bench.rank_of("a"), home_b = bench.rank_of("b");
  REQUIRE(home_a != home_b);
  bench.run_until([&] { return bench.rank_of("a") < 0 && bench.rank_of("b") < 0; });
  for (int i = 0; i < 5; ++i) {
    const auto again_b = bench.submit(make_request(name("b", i), iota_prompt(40, 500), 2));
    const auto again_a = bench.submit(make_request(name("a", i), iota_prompt(40), 2));
    CHECK(bench.rank_of(name("a", i)) == home_a);
    CHECK(bench.rank_of(name("b", i)) == home_b);
    bench.run_until([&] { return again_a->n_ends == 1 && again_b->n_ends == 1; });
    CHECK(again_a->usage.n_cached == 32);
    CHECK(again_b->usage.n_cached == 32);
  }
  bench.finish();
}

TEST_CASE("sticky_prefix: another cache salt is another prompt") {
  GroupBench bench(2);
  bench.submit(make_request("a", iota_prompt(40), 2), {.rank = 0});
  bench.run_until([&] { return bench.rank_of("a") < 0; });
  const auto busy = bench.submit(make_request("busy", iota_prompt(5, 900), 50), {.rank = 0});
  bench.run_until([&] { return !busy->choices.empty(); });
  Request salted = make_request("salted", iota_prompt(40), 2);
  salted.cache_salt = "s";
  bench.submit(salted);
  CHECK(bench.rank_of("salted") == 1);
  bench.submit(make_request("plain", iota_prompt(40), 2));
  CHECK(bench.rank_of("plain") == 0);
  bench.finish();
}

TEST_CASE("rank_overrides: a rank that is asked for is taken, and one that does not exist refused") {
  GroupBench bench(2);
  for (int i = 0; i < 4; ++i) {
    bench.submit(make_request(name("r", i), iota_prompt(4), 3), {.rank = 1});
    CHECK(bench.rank_of(name("r", i)) == 1);
  }
  const Refusal refusal = bench.refusal_of(make_request("x", iota_prompt(4), 3), {.rank = 2});
  CHECK(refusal.kind == Refusal::Kind::bad_request);
  CHECK(refusal.message == "data parallel rank 2 does not exist: it must be below 2");
  bench.finish();
  CHECK(bench.group->engine(0).snapshot().submitted == 0);
}

TEST_CASE("queue_limit: cap Q, Q + 20 sent at once, exactly 20 refused") {
  GroupBench bench(2);
  bench.options.limits.max_num_queued_reqs = 30;
  std::vector<std::shared_ptr<Recorder>> sinks;
  int n_refused = 0;
  for (int i = 0; i < 50; ++i) {
    auto sink = std::make_shared<Recorder>();
    const auto accepted = bench.try_submit(make_request(name("r", i), iota_prompt(4, 1 + 10 * i), 3), sink);
    if (accepted) {
      sinks.push_back(sink);
      continue;
    }
    ++n_refused;
    CHECK(accepted.error().kind == Refusal::Kind::queue_full);
    CHECK(accepted.error().retry_after >= 1);
    CHECK(accepted.error().message ==
          "the server is full: 30 sequences wait or run, 1 more would exceed --max-num-queued-reqs 30");
  }
  CHECK(n_refused == 20);
  CHECK(bench.group->n_refused_reqs() == 20);
  CHECK(bench.group->n_refused_tokens() == 0);
  bench.finish();
  for (const auto& sink : sinks) CHECK(sink->n_ends == 1);
}

TEST_CASE("queue_limit: n = 3 takes three places, whether it waits or runs") {
  GroupBench bench(2);
  bench.options.limits.max_num_queued_reqs = 6;
  Request three = make_request("three", iota_prompt(20), 200);
  three.n = 3;
  const auto sink = bench.submit(three);
  bench.run_until([&] { return sink->choices.size() == 3; });
  Request four = make_request("four", iota_prompt(20, 100), 4);
  four.n = 4;
  CHECK(bench.refusal_of(four).kind == Refusal::Kind::queue_full);
  Request more = make_request("more", iota_prompt(20, 100), 4);
  more.n = 3;
  const auto other = bench.submit(more);
  CHECK(bench.refusal_of(make_request("one", iota_prompt(4), 4)).kind == Refusal::Kind::queue_full);
  bench.run_until([&] { return other->n_ends == 1; });
  bench.submit(make_request("one", iota_prompt(4), 4));  // places come back
  bench.group->abort("three");
  bench.finish();
}

TEST_CASE(
    "queue_limit: a prompt that is not tokenised yet is refused when its sequences find no place, and counted once") {
  GroupBench bench(2);
  bench.options.limits = {.max_num_queued_reqs = 2, .max_num_queued_tokens = 10};
  bench.submit(make_request("a", iota_prompt(10), 4));
  CHECK(bench.group->check_room(1).has_value());
  const auto refused = bench.group->check_room(2);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().kind == Refusal::Kind::queue_full);
  CHECK(refused.error().retry_after >= 1);
  CHECK(bench.group->n_refused_reqs() == 1);
  CHECK(bench.group->n_refused_tokens() == 0);
  bench.finish();
  CHECK(bench.group->check_room(2).has_value());
}

TEST_CASE("queue_limit: prompt tokens count until the first token, a prompt of n sequences once") {
  GroupBench bench(2);
  bench.options.limits.max_num_queued_tokens = 100;
  Request request = make_request("a", iota_prompt(60), 200);
  request.n = 4;
  const auto sink = bench.submit(request);
  const Refusal refusal = bench.refusal_of(make_request("b", iota_prompt(41, 100), 4));
  CHECK(refusal.kind == Refusal::Kind::queue_full);
  CHECK(refusal.message ==
        "the server is full: 60 prompt tokens wait for their first output, 41 more would exceed "
        "--max-num-queued-tokens 100");
  CHECK(bench.group->n_refused_tokens() == 1);
  bench.submit(make_request("c", iota_prompt(40, 100), 4));
  bench.run_until([&] { return !sink->choices.empty(); });
  bench.submit(make_request("b", iota_prompt(41, 200), 4));  // a is being answered
  bench.group->abort("a");
  bench.finish();
}

TEST_CASE("retry_after: a refusal tells it from the queues and the rates of all engines") {
  GroupBench bench(2);
  bench.options.limits.max_num_queued_tokens = 300;
  bench.config.rates = Rates{.prefill = 20, .decode = 10};
  bench.submit(make_request("a", iota_prompt(200), 4));
  bench.submit(make_request("b", iota_prompt(100, 500), 4));
  // 300 rows at 2 x 20 a second; nobody runs yet.
  CHECK(bench.refusal_of(make_request("c", iota_prompt(1), 4)).retry_after == 8);
  bench.finish();
}

TEST_CASE("all_or_nothing: several prompts pass the limits together or not at all") {
  GroupBench bench(2);
  bench.options.limits.max_num_queued_reqs = 3;
  const auto prompts = [](size_t n) {
    std::vector<Request> requests(n);
    for (size_t i = 0; i < n; ++i)
      requests[i] = make_request(name("p", static_cast<int>(i)), iota_prompt(4, 1 + 10 * static_cast<TokenId>(i)), 3);
    return requests;
  };
  const auto sinks = [](size_t n) {
    std::vector<std::shared_ptr<OutputSink>> all;
    all.reserve(n);
    for (size_t i = 0; i < n; ++i) all.push_back(std::make_shared<Recorder>());
    return all;
  };
  const auto refused = bench.build().submit(prompts(4), sinks(4));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().kind == Refusal::Kind::queue_full);
  CHECK(bench.group->n_refused_reqs() == 1);  // one API request
  CHECK(bench.group->engine(0).snapshot().submitted + bench.group->engine(1).snapshot().submitted == 0);
  CHECK(bench.group->submit(prompts(3), sinks(3)).has_value());
  bench.finish();
}

TEST_CASE(
    "all_or_nothing: when the last prompt is refused the earlier ones are aborted, once each, and nothing is kept") {
  GroupBench bench(2);
  bench.build();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Recorder>> recorders;
  std::vector<std::shared_ptr<OutputSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(make_request(name("p", i), iota_prompt(4, 1 + 10 * i), 3));
    recorders.push_back(std::make_shared<Recorder>());
    sinks.push_back(recorders.back());
  }
  requests[2].prompt = iota_prompt(16 * 65);  // more blocks than an engine has
  const auto refused = bench.group->submit(std::move(requests), sinks);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().kind == Refusal::Kind::never_fits);
  for (const auto& recorder : recorders) CHECK(recorder->n_ends == 0);  // none hears of it inside the call
  bench.finish();
  CHECK(recorders[0]->reason() == FinishReason::abort);
  CHECK(recorders[1]->reason() == FinishReason::abort);
  CHECK(recorders[0]->n_ends == 1);
  CHECK(recorders[1]->n_ends == 1);
  CHECK(recorders[2]->n_ends == 0);
  uint64_t submitted = 0, rejected = 0, aborted = 0;
  for (const Snapshot& s : bench.group->snapshots()) {
    submitted += s.submitted;
    rejected += s.rejected;
    aborted += s.finished_abort;
  }
  CHECK(submitted == 3);
  CHECK(rejected == 1);
  CHECK(aborted == 2);
}

TEST_CASE("group: an id is live on one engine only") {
  GroupBench bench(2);
  bench.submit(make_request("same", iota_prompt(4), 3));
  CHECK(bench.refusal_of(make_request("same", iota_prompt(4), 3)).kind == Refusal::Kind::duplicate_id);
  CHECK(bench.refusal_of(make_request("same", iota_prompt(4), 3), {.rank = 1}).kind == Refusal::Kind::duplicate_id);
  bench.finish();
}

TEST_CASE("sticky_prefix: sessions between two turns do not make the engine that has the prefix look full") {
  GroupBench bench(2);
  Request session = make_request("session", iota_prompt(40), 3);
  session.session = true;
  const auto first = bench.submit(std::move(session), {.rank = 1});
  bench.run_until([&] { return bench.group->engine(1).snapshot().parked_sessions == 1; });
  const auto again = bench.submit(make_request("again", iota_prompt(40), 3));
  bench.run_until([&] { return again->n_ends == 1; });
  CHECK(again->usage.n_cached == 32);
  bench.finish();
}

TEST_CASE("group: abort finds a request wherever it is, by id, and all of them") {
  GroupBench bench(2);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (const char* id : {"a-1-0", "a-1-1", "a-12", "b"})
    sinks.push_back(bench.submit(make_request(id, iota_prompt(4, 1 + 10 * static_cast<int>(sinks.size())), 100)));
  CHECK_FALSE(bench.group->abort("nobody"));
  CHECK(bench.group->abort("b"));
  CHECK(bench.group->abort("a-1-0"));
  CHECK(bench.group->abort("a-1-1"));
  bench.run_until([&] { return sinks[0]->n_ends + sinks[1]->n_ends + sinks[3]->n_ends == 3; });
  CHECK(sinks[2]->n_ends == 0);
  CHECK(bench.group->abort_all() == 1);
  bench.finish();
  for (const auto& sink : sinks) CHECK(sink->reason() == FinishReason::abort);
}

TEST_CASE("sessions_stay: more input goes to the engine that has the session, whatever its load") {
  GroupBench bench(2);
  Request first = make_request("session", iota_prompt(20), 3);
  first.session = true;
  int n_turns = 0;
  struct TurnCounter final : OutputSink {
    int& turns;
    explicit TurnCounter(int& t) : turns(t) {}
    void on_delta(const Delta&) override {}
    void on_turn(const Usage&, const Times&) override { ++turns; }
    void on_end(const Usage&, const Times&) override {}
  };
  std::vector<Request> requests;
  requests.push_back(first);
  REQUIRE(bench.build().submit(std::move(requests), {std::make_shared<TurnCounter>(n_turns)}).has_value());
  const int home = bench.rank_of("session");
  bench.run_until([&] { return n_turns == 1; });
  for (int i = 0; i < 6; ++i)
    bench.submit(make_request(name("busy", i), iota_prompt(4, 100 + 10 * i), 60),
                 {.rank = static_cast<uint32_t>(home)});
  REQUIRE(bench.group->append("session", {.tokens = iota_prompt(5, 50), .max_tokens = 3}).has_value());
  bench.run_until([&] { return n_turns == 2; });
  CHECK(bench.rank_of("session") == home);
  CHECK(bench.group->engine(1u - static_cast<uint32_t>(home)).snapshot().submitted == 0);
  const auto unknown = bench.group->append("nobody", {.tokens = iota_prompt(5), .max_tokens = 3});
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().kind == Refusal::Kind::unknown_id);
  bench.group->close_session("session");
  bench.finish();
}

TEST_CASE("group: deferred requests are told apart from full ones and go on when they are ready, wherever they are") {
  GroupBench bench(2);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (uint32_t rank : {0u, 1u}) {
    Request request = make_request(name("d", static_cast<int>(rank)), iota_prompt(4), 3);
    request.deferral = sched::Deferral::grammar;
    sinks.push_back(bench.submit(request, {.rank = rank}));
  }
  const auto other = bench.submit(make_request("other", iota_prompt(4, 30), 3), {.rank = 1});
  bench.run_until([&] { return other->n_ends == 1; });
  for (const Snapshot& s : bench.group->snapshots()) {
    CHECK(s.waiting == 1);
    CHECK(s.deferred == 1);
  }
  bench.group->ready("d0");
  bench.group->fail("d1", "no such grammar");
  bench.finish();
  CHECK(sinks[0]->reason() == FinishReason::length);
  CHECK(sinks[1]->reason() == FinishReason::error);
  CHECK(sinks[1]->only().finish->message == "no such grammar");
}

TEST_CASE("operations: pause stops every engine, resume starts them, and the tokens are the same") {
  GroupBench bench(2);
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(4);
  for (int i = 0; i < 4; ++i)
    sinks.push_back(bench.submit(make_request(name("r", i), iota_prompt(20, 1 + 50 * i), 30)));
  bench.run_until([&] { return sinks[3]->choices.size() == 1; });
  bench.await(bench.group->pause(PauseMode::keep, false));
  CHECK(bench.group->is_paused());
  CHECK(bench.group->is_sleeping());
  for (uint32_t rank : {0u, 1u}) {
    CHECK(bench.group->engine(rank).is_paused());
    CHECK(bench.group->engine(rank).snapshot().in_flight == 0);
  }
  const uint64_t steps = bench.group->engine(0).snapshot().steps + bench.group->engine(1).snapshot().steps;
  while (bench.io.poll_one() > 0) {
  }
  CHECK(bench.group->engine(0).snapshot().steps + bench.group->engine(1).snapshot().steps == steps);
  bench.group->resume();
  CHECK_FALSE(bench.group->is_paused());
  bench.finish();
  for (int i = 0; i < 4; ++i)
    CHECK(sinks[static_cast<size_t>(i)]->only().tokens == bench.expected(iota_prompt(20, 1 + 50 * i), 30));
}

TEST_CASE("operations: sleep takes the memory of all engines, wake brings all back, and the tokens are the same") {
  GroupBench bench(2);
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(4);
  for (int i = 0; i < 4; ++i)
    sinks.push_back(bench.submit(make_request(name("r", i), iota_prompt(20, 1 + 50 * i), 30)));
  bench.run_until([&] { return sinks[3]->choices.size() == 1; });
  CHECK(bench.await(bench.group->sleep(SleepLevel::weights, PauseMode::keep)).has_value());
  CHECK(bench.group->sleep_level() == SleepLevel::weights);
  CHECK(bench.group->is_sleeping());
  for (StubRunner* runner : bench.runners) CHECK(runner->asleep());
  for (const Snapshot& s : bench.group->snapshots()) CHECK(s.sleep == stats::SleepState::weights_offloaded);
  CHECK(bench.await(bench.group->wake_up({})).has_value());
  for (StubRunner* runner : bench.runners) CHECK_FALSE(runner->asleep());
  CHECK(bench.group->sleep_level() == SleepLevel::pause);
  CHECK_FALSE(bench.group->is_sleeping());
  bench.finish();
  for (int i = 0; i < 4; ++i)
    CHECK(sinks[static_cast<size_t>(i)]->only().tokens == bench.expected(iota_prompt(20, 1 + 50 * i), 30));
}

TEST_CASE("operations: when an engine cannot wake its error is given, it sleeps on, and the next attempt can succeed") {
  for (int faulty : {1, 2}) {
    CAPTURE(faulty);
    GroupBench bench(2);
    int n_asked = 0;
    bench.stub.wake_fault = [&]() -> std::optional<std::string> {
      if (++n_asked == faulty) return "the file is gone";
      return std::nullopt;
    };
    bench.start();
    CHECK(bench.await(bench.group->sleep(SleepLevel::discard, PauseMode::wait)).has_value());
    const Result<void> woken = bench.await(bench.group->wake_up({}));
    REQUIRE_FALSE(woken.has_value());
    CHECK(woken.error().message == "the file is gone");
    CHECK(bench.runners[0]->asleep() != bench.runners[1]->asleep());
    CHECK(bench.group->is_sleeping());
    CHECK(bench.group->is_paused());
    CHECK(bench.group->sleep_level() == SleepLevel::discard);
    CHECK(bench.await(bench.group->wake_up({})).has_value());
    CHECK_FALSE(bench.group->is_sleeping());
    bench.submit(make_request("a", iota_prompt(20), 3));
    bench.finish();
  }
}

TEST_CASE("operations: the prefix caches of all engines are reset, or the answer is no") {
  GroupBench bench(2);
  bench.submit(make_request("a", iota_prompt(40), 2), {.rank = 0});
  bench.submit(make_request("b", iota_prompt(40), 2), {.rank = 1});
  const auto busy = bench.submit(make_request("busy", iota_prompt(4, 900), 200), {.rank = 1});
  bench.run_until([&] { return bench.rank_of("a") < 0 && bench.rank_of("b") < 0 && !busy->choices.empty(); });
  CHECK_FALSE(bench.await(bench.group->reset_prefix_cache(false)));
  CHECK(bench.group->engine(0).cached_tokens(iota_prompt(40), "") == 0);  // this one could
  CHECK(bench.group->engine(1).cached_tokens(iota_prompt(40), "") == 32);
  CHECK(bench.await(bench.group->reset_prefix_cache(true)));
  CHECK(bench.group->engine(1).cached_tokens(iota_prompt(40), "") == 0);
  bench.finish();
  CHECK(busy->only().tokens == bench.expected(iota_prompt(4, 900), 200));
}

TEST_CASE("group: a device fault makes the group unhealthy, and the other engine goes on") {
  GroupBench bench(2);
  bench.stub.fault = [](const sched::StepPlan& plan) -> std::optional<Fault> {
    for (const sched::SeqStep& step : plan.seqs)
      if (step.sequence->tokens.front() == 666) return Fault{.message = "lost", .scope = Fault::Scope::device};
    return std::nullopt;
  };
  const auto doomed = bench.submit(make_request("doomed", iota_prompt(4, 666), 10), {.rank = 0});
  const auto well = bench.submit(make_request("well", iota_prompt(4), 10), {.rank = 1});
  bench.run_until([&] { return doomed->n_ends == 1; });
  CHECK(doomed->reason() == FinishReason::error);
  CHECK_FALSE(bench.group->healthy());
  const auto next = bench.submit(make_request("next", iota_prompt(4, 30), 10));
  CHECK(bench.rank_of("next") == 1);
  bench.finish();
  CHECK(well->reason() == FinishReason::length);
  CHECK(next->reason() == FinishReason::length);
}

}  // namespace
}  // namespace heddle::engine
