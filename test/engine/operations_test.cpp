// Pause, resume, sleep, wake, reset, deferral: what an operator or another part of the server does beside the steps.
#include <boost/asio/use_awaitable.hpp>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

struct Operated : EngineBench {
  explicit Operated(uint32_t depth = 2, uint32_t n_blocks = 64) : EngineBench(depth, n_blocks) {}
  // Starts an operation beside the loop; `done` is set when it has returned.
  template <class T>
  void begin(boost::asio::awaitable<T> operation, std::optional<T>& done) {
    boost::asio::co_spawn(io, std::move(operation), [&done](const std::exception_ptr& error, T value) {
      if (error) std::rethrow_exception(error);
      done = std::move(value);
    });
  }
  void begin(boost::asio::awaitable<void> operation, bool& done) {
    boost::asio::co_spawn(io, std::move(operation), [&done](const std::exception_ptr& error) {
      if (error) std::rethrow_exception(error);
      done = true;
    });
  }
  // Runs the loop until the sink has `n` tokens.
  void run_to(const std::shared_ptr<Recorder>& sink, size_t n) {
    while (!sink->choices.contains(0) || sink->choices.at(0).tokens.size() < n) REQUIRE(io.poll_one() == 1);
  }
};

TEST_CASE("pause keep: everything stands still where it is, and goes on with the same tokens") {
  Operated bench;
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
  bench.start();
  bench.run_to(sink, 5);
  bool paused = false;
  bench.begin(bench.engine->pause(PauseMode::keep, false), paused);
  bench.io.poll();
  CHECK(paused);
  CHECK(bench.engine->is_paused());
  const size_t n = sink->choices.at(0).tokens.size();
  CHECK(n < 10);
  const auto late = bench.submit(make_request("b", iota_prompt(4), 3));
  bench.io.poll();
  CHECK(sink->choices.at(0).tokens.size() == n);
  CHECK(late->choices.empty());
  CHECK(bench.engine->snapshot().in_flight == 0);
  CHECK(bench.engine->snapshot().running == 1);
  bench.engine->resume();
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 30));
  CHECK(late->reason() == FinishReason::length);
}

TEST_CASE("pause wait: what has begun is finished first, preempted ones too, and new requests stay queued") {
  Operated bench(2, 6);
  bench.config.scheduler.block_size = 4;
  const auto a = bench.submit(make_request("a", iota_prompt(8), 10));
  const auto b = bench.submit(make_request("b", iota_prompt(8, 50), 10));
  bench.start();
  bench.run_to(a, 6);
  CHECK(bench.engine->snapshot().preemptions > 0);
  bool paused = false;
  bench.begin(bench.engine->pause(PauseMode::wait, false), paused);
  const auto late = bench.submit(make_request("c", iota_prompt(4), 3));
  bench.io.poll();
  CHECK(paused);
  CHECK(a->n_ends == 1);
  CHECK(b->n_ends == 1);
  CHECK(b->only().tokens == bench.expected(iota_prompt(8, 50), 10));
  CHECK(late->n_ends == 0);
  CHECK(bench.engine->snapshot().waiting == 1);
  bench.engine->resume();
  bench.finish();
  CHECK(late->n_ends == 1);
}

TEST_CASE("pause abort: live requests end with abort, later ones wait") {
  Operated bench;
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
  const auto queued = bench.submit(make_request("q", iota_prompt(20), 30));
  bench.start();
  bench.run_to(sink, 2);
  bool paused = false;
  bench.begin(bench.engine->pause(PauseMode::abort, true), paused);
  bench.io.poll();
  CHECK(paused);
  CHECK(sink->reason() == FinishReason::abort);
  CHECK(queued->reason() == FinishReason::abort);
  CHECK(bench.engine->snapshot().blocks_cached == 0);  // cleared
  CHECK(bench.engine->snapshot().cache_resets == 1);
  const auto late = bench.submit(make_request("c", iota_prompt(4), 3));
  bench.io.poll();
  CHECK(late->n_ends == 0);
  bench.engine->resume();
  bench.finish();
  CHECK(late->reason() == FinishReason::length);
}

TEST_CASE("pause keep: taken back while a step is in flight, it returns, and the next operation has its turn") {
  Operated bench;
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 2000));
  bench.config.scheduler.max_model_len = 4096;
  bench.start();
  bench.run_to(sink, 5);
  bool paused = false;
  std::optional<bool> reset;
  bench.begin(bench.engine->pause(PauseMode::keep, false), paused);
  while (!bench.engine->is_paused()) bench.io.poll_one();
  bench.engine->resume();
  for (int i = 0; i < 1000 && !paused; ++i) bench.io.poll_one();
  CHECK(paused);
  bench.begin(bench.engine->reset_prefix_cache(false), reset);
  for (int i = 0; i < 1000 && !reset; ++i) bench.io.poll_one();
  CHECK(reset.has_value());
  CHECK(sink->n_ends == 0);
  bench.engine->abort_all();
  bench.finish();
}

TEST_CASE("pause wait: a request whose sequences found no slot beside each other is finished as a whole") {
  Operated bench;
  bench.config.scheduler.max_num_seqs = 2;
  Request request = make_request("a", iota_prompt(20), 12);
  request.n = 4;
  const auto sink = bench.submit(std::move(request));
  bench.start();
  bench.run_to(sink, 3);
  bool paused = false;
  bench.begin(bench.engine->pause(PauseMode::wait, false), paused);
  bench.io.poll();
  CHECK(paused);
  CHECK(sink->n_ends == 1);
  bench.engine->resume();
  bench.finish();
}

TEST_CASE("sleep: a deeper level is reached from a lighter one, and a lighter one changes nothing") {
  Operated bench;
  bench.submit(make_request("a", iota_prompt(20), 3));
  bench.start();
  bench.io.poll();
  for (const auto& [asked, reached] :
       {std::pair{SleepLevel::weights, SleepLevel::weights}, std::pair{SleepLevel::discard, SleepLevel::discard},
        std::pair{SleepLevel::weights, SleepLevel::discard}}) {
    std::optional<Result<void>> slept;
    bench.begin(bench.engine->sleep(asked, PauseMode::keep), slept);
    bench.io.poll();
    REQUIRE(slept.has_value());
    CHECK(bench.engine->sleep_level() == reached);
  }
  std::optional<Result<void>> woken;
  bench.begin(bench.engine->wake_up({}), woken);
  bench.io.poll();
  CHECK_FALSE(bench.engine->is_sleeping());
  bench.finish();
}

TEST_CASE("sleep and wake: memory goes and comes back, what was kept goes on with the same tokens") {
  for (const SleepLevel level : {SleepLevel::pause, SleepLevel::weights, SleepLevel::discard}) {
    CAPTURE(static_cast<int>(level));
    Operated bench;
    const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
    bench.start();
    bench.run_to(sink, 5);
    std::optional<Result<void>> slept, woken;
    bench.begin(bench.engine->sleep(level, PauseMode::keep), slept);
    bench.io.poll();
    REQUIRE(slept.has_value());
    CHECK(slept->has_value());
    CHECK(bench.engine->is_sleeping());
    CHECK(bench.engine->sleep_level() == level);
    CHECK(bench.runner->asleep() == (level != SleepLevel::pause));
    const auto state = bench.engine->snapshot().sleep;
    CHECK(state == (level == SleepLevel::pause     ? stats::SleepState::paused
                    : level == SleepLevel::weights ? stats::SleepState::weights_offloaded
                                                   : stats::SleepState::discard_all));
    if (level != SleepLevel::pause) {
      bench.engine->resume();  // not enough: the memory is away
      bench.io.poll();
      CHECK(bench.engine->is_sleeping());
      CHECK(bench.engine->snapshot().blocks_held == 0);
    }
    bench.begin(bench.engine->wake_up({}), woken);
    bench.io.poll();
    REQUIRE(woken.has_value());
    CHECK(woken->has_value());
    CHECK_FALSE(bench.engine->is_sleeping());
    CHECK(bench.engine->snapshot().sleep == stats::SleepState::awake);
    bench.finish();
    CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 30));
  }
}

TEST_CASE("wake by parts: planning goes on when all of it is there; a failure to wake leaves the engine asleep") {
  Operated bench;
  int n_failures = 1;
  bench.stub.wake_fault = [&]() -> std::optional<std::string> {
    return n_failures-- > 0 ? std::optional<std::string>("the file is gone") : std::nullopt;
  };
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
  bench.start();
  bench.run_to(sink, 5);
  std::optional<Result<void>> slept, first, second, third;
  bench.begin(bench.engine->sleep(SleepLevel::weights, PauseMode::keep), slept);
  bench.io.poll();
  bench.begin(bench.engine->wake_up({.weights = true, .kv_cache = false, .scheduling = false}), first);
  bench.io.poll();
  REQUIRE(first.has_value());
  REQUIRE_FALSE(first->has_value());
  CHECK(first->error().message == "the file is gone");
  CHECK(bench.engine->is_sleeping());
  bench.begin(bench.engine->wake_up({.weights = true, .kv_cache = false, .scheduling = false}), second);
  bench.io.poll();
  CHECK(second.has_value());
  CHECK(bench.engine->is_sleeping());
  CHECK(sink->n_ends == 0);
  bench.begin(bench.engine->wake_up({.weights = false, .kv_cache = true, .scheduling = false}), third);
  bench.io.poll();
  CHECK_FALSE(bench.engine->is_sleeping());
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 30));
}

TEST_CASE("reset_prefix_cache: false while blocks are held, true after the running ones gave theirs up, same tokens") {
  Operated bench;
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
  bench.start();
  bench.run_to(sink, 5);
  std::optional<bool> refused, done;
  bench.begin(bench.engine->reset_prefix_cache(false), refused);
  while (!refused) bench.io.poll_one();
  CHECK_FALSE(*refused);
  bench.begin(bench.engine->reset_prefix_cache(true), done);
  while (!done) bench.io.poll_one();
  CHECK(*done);
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 30));
  CHECK(bench.engine->snapshot().preemptions == 1);
}

TEST_CASE("head_of_line_or_deferred: a deferred request is passed, starts when it is ready, or ends when that failed") {
  Operated bench;
  Request grammar = make_request("g", iota_prompt(20), 3);
  grammar.deferral = sched::Deferral::grammar;
  const auto waiting = bench.submit(std::move(grammar));
  Request image = make_request("i", iota_prompt(20), 3);
  image.deferral = sched::Deferral::image;
  const auto failing = bench.submit(std::move(image));
  const auto plain = bench.submit(make_request("p", iota_prompt(6), 3));
  bench.start();
  bench.io.poll();
  CHECK(plain->n_ends == 1);
  CHECK(waiting->n_ends == 0);
  CHECK(bench.engine->snapshot().waiting == 2);
  CHECK(bench.engine->snapshot().deferred == 2);
  bench.engine->ready("g");
  bench.engine->fail("i", "the image is broken");
  bench.finish();
  CHECK(waiting->only().tokens == bench.expected(iota_prompt(20), 3));
  CHECK(failing->reason() == FinishReason::error);
  CHECK(failing->only().finish->message == "the image is broken");
}

TEST_CASE("fork: n sequences of one prompt take its rows once, and each gives what it gives alone with its seed") {
  for (const uint32_t depth : {1u, 2u, 4u}) {
    CAPTURE(depth);
    Operated bench(depth);
    Request request = make_request("a", iota_prompt(20), 6);
    request.n = 3;
    request.sampling.seed = 40;
    const auto sink = bench.submit(std::move(request));
    bench.finish();
    REQUIRE(sink->choices.size() == 3);
    for (const auto& [index, choice] : sink->choices)
      CHECK(choice.tokens == bench.expected(iota_prompt(20), 6, 40 + index));
    CHECK(bench.runner->n_rows() == 20 + 3 * 5);
    CHECK(bench.runner->n_copies() == 2);
    CHECK(bench.engine->snapshot().forks == 2);
    CHECK(bench.engine->snapshot().prompt_tokens == 60);
    CHECK(sink->usage.n_prompt == 20);
    CHECK(sink->usage.n_generated == 18);
  }
}

}  // namespace
}  // namespace heddle::engine
