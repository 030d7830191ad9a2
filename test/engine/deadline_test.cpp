// Deadlines on a made-up clock and made-up rates.
#include "engine_fixture.h"

namespace heddle::engine {
namespace {

using std::chrono::milliseconds;

MonotonicTime fake_now{std::chrono::hours(5)};
MonotonicTime read_fake_now() { return fake_now; }

struct Timed : EngineBench {
  Timed() : EngineBench(1, 512) {
    config.clock = read_fake_now;
    config.rates = Rates{.prefill = 1000, .decode = 100};  // a row is 1 ms, half of that in favour of the request
    config.scheduler.max_num_seqs = 1;
    config.scheduler.max_model_len = 8000;
    config.scheduler.max_num_batched_tokens = 64;
  }
  static Request request(std::string id, uint32_t n_prompt, uint32_t max_tokens, Deadlines deadlines) {
    Request request = make_request(std::move(id), iota_prompt(n_prompt), max_tokens);
    request.deadlines = deadlines;
    return request;
  }
};

TEST_CASE("deadline: a queued request whose time is over is dropped before it is ever computed") {
  Timed bench;
  bench.config.rates = Rates{};  // no prediction: the time must really be over
  const auto running = bench.submit(make_request("r", iota_prompt(10), 50));
  const auto late = bench.submit(Timed::request("late", 10, 5, {.total = fake_now + milliseconds(100)}));
  running->also = [](const Delta&) { fake_now += milliseconds(3); };
  bench.finish();
  CHECK(running->reason() == FinishReason::length);
  CHECK(late->reason() == FinishReason::abort);
  CHECK(late->only().finish->deadline_exceeded);
  CHECK(late->only().finish->message.starts_with("the request's deadline passed"));
  CHECK(late->times.scheduled == MonotonicTime{});
  CHECK(bench.engine->snapshot().deadlines_queued == 1);
  CHECK(bench.engine->snapshot().deadlines_running == 0);
  CHECK(bench.engine->snapshot().finished_abort == 1);
}

TEST_CASE(
    "deadline: a request that cannot make its first token in time at twice the measured rate is dropped at once") {
  Timed bench;
  bench.submit(make_request("r", iota_prompt(10), 5));
  bench.submit(make_request("before", iota_prompt(400), 5));
  // 400 rows before it and 600 of its own: 500 ms at twice the rate.
  const auto hopeless = bench.submit(Timed::request("x", 600, 5, {.first_token = fake_now + milliseconds(499)}));
  const auto possible = bench.submit(Timed::request("y", 600, 5, {.first_token = fake_now + milliseconds(1200)}));
  bench.start();
  bench.io.poll_one();
  bench.io.poll_one();
  REQUIRE(hopeless->n_ends == 1);
  CHECK(hopeless->only().finish->deadline_exceeded);
  CHECK(hopeless->only().finish->message.find("at 2 times the measured rate") != std::string::npos);
  bench.finish();
  CHECK(possible->reason() == FinishReason::length);
}

TEST_CASE("deadline: what the cache holds is not counted against a request") {
  Timed bench;
  bench.submit(make_request("r", iota_prompt(600), 1));
  bench.start();
  bench.io.poll();
  bench.submit(make_request("other", iota_prompt(10, 900), 200));
  bench.io.poll_one();
  const auto cached = bench.submit(Timed::request("c", 600, 1, {.first_token = fake_now + milliseconds(20)}));
  bench.finish();
  CHECK(cached->reason() == FinishReason::length);
}

TEST_CASE("deadline: one that passes while the request runs ends it there; the first token's does not once it came") {
  Timed bench;
  const auto total = bench.submit(Timed::request("t", 10, 50, {.total = fake_now + milliseconds(30)}));
  total->also = [](const Delta& delta) {
    if (!delta.tokens.empty()) fake_now += milliseconds(10);
  };
  bench.finish();
  CHECK(total->reason() == FinishReason::abort);
  CHECK(total->only().finish->deadline_exceeded);
  CHECK(total->only().tokens.size() >= 3);
  CHECK(total->only().tokens.size() < 6);
  CHECK(bench.engine->snapshot().deadlines_running == 1);

  Timed other;
  const auto first = other.submit(Timed::request("f", 10, 50, {.first_token = fake_now + milliseconds(30)}));
  first->also = [](const Delta&) { fake_now += milliseconds(10); };
  other.finish();
  CHECK(first->reason() == FinishReason::length);
}

TEST_CASE("deadline: without measured rates nobody is given up for a prediction") {
  Timed bench;
  bench.config.rates = Rates{};
  const auto sink = bench.submit(Timed::request("x", 4000, 2, {.first_token = fake_now + milliseconds(1)}));
  bench.finish();
  CHECK(sink->reason() == FinishReason::length);
}

TEST_CASE("a paused engine still drops what is late") {
  EngineBench bench(1);
  Request request = make_request("x", iota_prompt(10), 5);
  request.deferral = sched::Deferral::grammar;
  request.deadlines.total = Monotonic::now() + milliseconds(20);
  const auto sink = bench.submit(std::move(request));
  bench.finish();  // runs until it was dropped: nothing else would end it
  CHECK(sink->only().finish->deadline_exceeded);
}

}  // namespace
}  // namespace heddle::engine
