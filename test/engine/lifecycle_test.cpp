// A request's way through the engine: refused at the door, several answers, aborted in each state, shutdown, numbers.
#include <boost/asio/post.hpp>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

TEST_CASE("refused at the door: one line that names the field, nothing kept") {
  EngineBench bench;
  bench.config.vocab_size = 1000;
  bench.config.scheduler.max_model_len = 100;
  const auto refused = [&](auto change, Refusal::Kind kind, const std::string& message) {
    Request request = make_request("x", iota_prompt(4), 10);
    change(request);
    const Refusal refusal = bench.refusal_of(std::move(request));
    CHECK(refusal.kind == kind);
    CHECK(refusal.message == message);
  };
  using Kind = Refusal::Kind;
  refused([](Request& r) { r.prompt.clear(); }, Kind::bad_request, "prompt: must have at least one token");
  refused([](Request& r) { r.prompt[2] = 1000; }, Kind::bad_request,
          "prompt: token 1000 at index 2 is outside the vocabulary of 1000");
  refused([](Request& r) { r.prompt[0] = -1; }, Kind::bad_request,
          "prompt: token -1 at index 0 is outside the vocabulary of 1000");
  refused([](Request& r) { r.max_tokens = 0; }, Kind::bad_request, "max_tokens: must be at least 1");
  refused([](Request& r) { r.max_tokens = 97; }, Kind::bad_request,
          "max_tokens: 4 prompt tokens and 97 output tokens exceed the model length of 100");
  refused([](Request& r) { r.max_tokens = UINT32_MAX; }, Kind::bad_request,
          "max_tokens: 4 prompt tokens and 4294967295 output tokens exceed the model length of 100");
  refused([](Request& r) { r.n = 0; }, Kind::bad_request, "n: must be at least 1");
  refused([](Request& r) { r.stop.strings = {"x"}; }, Kind::bad_request,
          "stop: this engine has no tokenizer and sees no text");
  refused([](Request& r) { r.stop.token_ids = {5000}; }, Kind::bad_request,
          "stop_token_ids: token 5000 is outside the vocabulary of 1000");
  refused(
      [](Request& r) {
        r.sampling.logit_bias = {{-4, 1.0F}};
      },
      Kind::bad_request, "logit_bias: token -4 is outside the vocabulary of 1000");
  bench.submit(make_request("x", iota_prompt(4), 96));
  refused([](Request&) {}, Kind::duplicate_id, "request id x is in use");
  refused([](Request& r) { r.id = "y", r.n = 3, r.prompt.clear(); }, Kind::bad_request,
          "prompt: must have at least one token");
  CHECK(bench.engine->snapshot().rejected == 9 + 1 + 3);  // n = 0 counts nothing, n = 3 three
  CHECK(bench.engine->snapshot().submitted == 1 + 13);
  CHECK(bench.engine->snapshot().waiting == 1);
  bench.finish();
}

TEST_CASE("an id may be used again when its request is over") {
  EngineBench bench(2);
  bench.start();
  for (int i = 0; i < 3; ++i) {
    const auto sink = bench.submit(make_request("same", iota_prompt(4), 3));
    bench.io.poll();
    bench.io.restart();
    CHECK(sink->n_ends == 1);
  }
  bench.finish();
}

TEST_CASE("n answers from one prompt: each with a seed of its own and one end; the prompt is counted once") {
  EngineBench bench(2);
  Request request = make_request("a", iota_prompt(40), 6);
  request.n = 3;
  request.sampling.seed = 70;
  const auto sink = bench.submit(request);
  bench.finish();
  REQUIRE(sink->choices.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(sink->choices[i].tokens == bench.expected(iota_prompt(40), 6, 70 + i));
    CHECK(sink->choices[i].finish->reason == FinishReason::length);
  }
  CHECK(sink->choices[0].tokens != sink->choices[1].tokens);
  CHECK(sink->usage.n_prompt == 40);
  CHECK(sink->usage.n_generated == 18);
  CHECK(bench.engine->snapshot().finished_length == 3);
}

TEST_CASE("the second request with a prompt reports what the prefix cache saved") {
  EngineBench bench(1);
  bench.start();
  const auto first = bench.submit(make_request("a", iota_prompt(40), 2));
  bench.io.poll();
  bench.io.restart();
  const auto second = bench.submit(make_request("b", iota_prompt(40), 2));
  bench.finish();
  CHECK(first->usage.n_cached == 0);
  CHECK(second->usage.n_cached == 32);
  CHECK(first->only().tokens == second->only().tokens);
  CHECK(bench.engine->snapshot().prefix_queries == 80);
  CHECK(bench.engine->snapshot().prefix_hits == 32);
}

// Lets the loop run until the condition holds.
void run_until(EngineBench& bench, const std::function<bool()>& condition) {
  for (int i = 0; i < 10000 && !condition(); ++i) {
    bench.io.restart();
    REQUIRE(bench.io.poll_one() > 0);
  }
  REQUIRE(condition());
}

TEST_CASE("abort while it waits: it ends with reason abort, without a token") {
  EngineBench bench(2);
  bench.config.scheduler.max_num_seqs = 1;
  const auto running = bench.submit(make_request("a", iota_prompt(4), 50));
  const auto queued = bench.submit(make_request("b", iota_prompt(4), 50));
  bench.start();
  run_until(bench, [&] { return bench.engine->snapshot().running == 1; });
  bench.engine->abort("b");
  bench.engine->abort("b");
  bench.engine->abort("unknown");
  CHECK(bench.engine->snapshot().waiting == 0);
  bench.finish();
  CHECK(queued->reason() == FinishReason::abort);
  CHECK(queued->only().tokens.empty());
  CHECK(queued->times.scheduled == MonotonicTime{});
  CHECK(running->only().tokens.size() == 50);
  CHECK(bench.engine->snapshot().finished_abort == 1);
}

TEST_CASE("abort between launch and commit: the row is dropped, one end, blocks are free after the steps in flight") {
  for (const uint32_t depth : {1u, 2u, 3u}) {
    CAPTURE(depth);
    EngineBench bench(depth);
    const auto sink = bench.submit(make_request("a", iota_prompt(20), 50));
    bench.start();
    run_until(bench, [&] { return bench.engine->snapshot().in_flight == depth; });
    bench.engine->abort("a");
    CHECK(bench.engine->snapshot().running == 0);
    CHECK(bench.engine->snapshot().blocks_held > 0);  // release-after-flight
    const uint64_t before = bench.engine->snapshot().steps;
    run_until(bench, [&] { return bench.engine->snapshot().blocks_held == 0; });
    CHECK(bench.engine->snapshot().steps - before <= depth);
    bench.finish();
    CHECK(sink->reason() == FinishReason::abort);
    CHECK(sink->only().tokens.empty());
    CHECK(bench.engine->snapshot().generation_tokens == 0);
  }
}

TEST_CASE("abort while a long prompt is computed in chunks") {
  EngineBench bench(2);
  bench.config.scheduler.max_num_seqs = 8;
  bench.config.scheduler.max_num_batched_tokens = 16;
  const auto sink = bench.submit(make_request("a", iota_prompt(200), 5));
  bench.start();
  run_until(bench, [&] { return bench.engine->snapshot().steps == 3; });
  bench.engine->abort("a");
  bench.finish();
  CHECK(sink->reason() == FinishReason::abort);
  CHECK(bench.engine->snapshot().steps <= 5);
}

TEST_CASE("a sink may abort its own request, another one, and submit, from inside a delta") {
  EngineBench bench(2);
  const auto own = bench.submit(make_request("own", iota_prompt(4), 50));
  const auto other = bench.submit(make_request("other", iota_prompt(5), 50));
  std::shared_ptr<Recorder> third;
  own->also = [&](const Delta& delta) {
    if (delta.finish || third) return;
    bench.engine->abort("own");
    bench.engine->abort("other");
    third = bench.submit(make_request("third", iota_prompt(6), 3));
  };
  bench.start();
  run_until(bench, [&] { return third && third->n_ends == 1; });
  bench.finish();
  CHECK(own->reason() == FinishReason::abort);
  CHECK(other->reason() == FinishReason::abort);
  REQUIRE(third);
  CHECK(third->only().tokens == bench.expected(iota_prompt(6), 3));
}

TEST_CASE("two-phase stop: no new work, live requests go on to their end, then the loop ends") {
  EngineBench bench(2);
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 30));
  bench.start();
  run_until(bench, [&] { return bench.engine->snapshot().steps == 2; });
  bench.engine->stop();
  const Refusal refusal = bench.refusal_of(make_request("b", iota_prompt(4), 3));
  CHECK(refusal.kind == Refusal::Kind::stopping);
  bench.finish();
  CHECK(sink->reason() == FinishReason::length);
  CHECK(sink->only().tokens.size() == 30);
}

TEST_CASE("abort_all ends what is live when the grace time is over") {
  EngineBench bench(3);
  bench.config.scheduler.max_num_seqs = 2;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 5; ++i) sinks.push_back(bench.submit(make_request(fmt::format("{}", i), iota_prompt(4), 500)));
  bench.start();
  run_until(bench, [&] { return bench.engine->snapshot().steps == 4; });
  bench.engine->stop();
  bench.engine->abort_all();
  bench.finish();
  for (const auto& sink : sinks) CHECK(sink->reason() == FinishReason::abort);
  CHECK(bench.engine->snapshot().finished_abort == 5);
  CHECK(bench.engine->snapshot().steps <= 7);
}

TEST_CASE("an engine that is stopped before any work ends its loop") {
  EngineBench bench;
  bench.finish();
  CHECK(bench.trace->text() == "");
}

TEST_CASE("a tight pool preempts, and every answer is what it would be alone") {
  for (const uint32_t depth : {1u, 2u, 4u}) {
    CAPTURE(depth);
    EngineBench bench(depth, 8, 4);
    bench.config.scheduler.max_num_seqs = 8;
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (int i = 0; i < 8; ++i)
      sinks.push_back(bench.submit(make_request(fmt::format("{}", i), iota_prompt(5, i * 10), 12)));
    bench.finish();
    CHECK(bench.engine->snapshot().preemptions > 0);
    for (int i = 0; i < 8; ++i) {
      CHECK(sinks[static_cast<size_t>(i)]->only().tokens == bench.expected(iota_prompt(5, i * 10), 12));
      CHECK(sinks[static_cast<size_t>(i)]->usage.n_generated == 12);
    }
    CHECK(bench.engine->snapshot().generation_tokens == 96);
  }
}

TEST_CASE("times: queued, scheduled, first and last token come in this order, from one clock") {
  EngineBench bench(2);
  const MonotonicTime before = Monotonic::now();
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 5));
  bench.finish();
  const Times& t = sink->times;
  CHECK(before <= t.queued);
  CHECK(t.queued <= t.scheduled);
  CHECK(t.scheduled <= t.first_token);
  CHECK(t.first_token <= t.last_token);
  CHECK(t.last_token <= Monotonic::now());
  CHECK(bench.engine->last_step() == t.last_token);
}

TEST_CASE("on a fictitious clock the device never waits for the host from depth 2 on, and always at depth 1") {
  for (const uint32_t depth : {1u, 2u, 3u, 4u}) {
    CAPTURE(depth);
    EngineBench bench(depth);
    bench.stub.clock = StubOptions::Clock::fictitious;
    bench.stub.step_time = std::chrono::microseconds(1000);
    bench.stub.row_time = std::chrono::microseconds(10);
    bench.stub.host_time = std::chrono::microseconds(100);
    for (int i = 0; i < 4; ++i) bench.submit(make_request(fmt::format("{}", i), iota_prompt(8, i), 50));
    bench.finish();
    const auto idle = bench.runner->idle_time();
    if (depth == 1)
      CHECK(idle == std::chrono::microseconds(100) * 49);
    else
      CHECK(idle == Monotonic::duration{});
    CHECK(bench.runner->busy_time() ==
          std::chrono::microseconds(1000) * 50 + std::chrono::microseconds(10) * (32 + 4 * 49));
  }
}

TEST_CASE("on the real clock a step takes its time, and two in flight overlap with the host") {
  EngineBench bench(2);
  bench.stub.clock = StubOptions::Clock::real;
  bench.stub.step_time = std::chrono::milliseconds(2);
  const MonotonicTime begin = Monotonic::now();
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 10));
  bench.finish();
  CHECK(Monotonic::now() - begin >= std::chrono::milliseconds(20));
  CHECK(sink->only().tokens.size() == 10);
}

}  // namespace
}  // namespace heddle::engine
