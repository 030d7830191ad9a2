// What the random test found, each as small as it can be told.
#include <boost/asio/post.hpp>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

// The answers and usages of a session's turns.
struct Turns final : OutputSink {
  std::vector<std::vector<TokenId>> answers{{}};
  std::vector<Usage> usages;
  std::vector<Finish> finishes;
  int n_ends = 0;
  std::function<void()> answered;
  void on_delta(const Delta& delta) override {
    answers.back().insert(answers.back().end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.finish) finishes.push_back(*delta.finish);
  }
  void on_turn(const Usage& usage, const Times&) override {
    usages.push_back(usage);
    answers.emplace_back();
    if (answered) answered();
  }
  void on_end(const Usage& usage, const Times&) override {
    usages.push_back(usage);
    ++n_ends;
  }
};

std::shared_ptr<Turns> open_session(EngineBench& bench, uint32_t n_prompt, uint32_t max_tokens) {
  if (!bench.engine) bench.build();
  Request request = make_request("s", iota_prompt(n_prompt), max_tokens);
  request.session = true;
  auto sink = std::make_shared<Turns>();
  REQUIRE(bench.engine->submit(std::move(request), sink).has_value());
  return sink;
}

Turn make_turn(std::vector<TokenId> tokens, uint32_t max_tokens) {
  Turn turn;
  turn.tokens = std::move(tokens);
  turn.max_tokens = max_tokens;
  return turn;
}

void begin(EngineBench& bench, boost::asio::awaitable<void> operation, bool& done) {
  boost::asio::co_spawn(bench.io, std::move(operation), [&done](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
    done = true;
  });
}

template <class T>
void begin(EngineBench& bench, boost::asio::awaitable<T> operation, bool& done) {
  boost::asio::co_spawn(bench.io, std::move(operation), [&done](const std::exception_ptr& error, T) {
    if (error) std::rethrow_exception(error);
    done = true;
  });
}

TEST_CASE("pausing and sleeping again while asleep plans nothing for a runner that has forgotten its blocks") {
  for (const PauseMode mode : {PauseMode::abort, PauseMode::wait, PauseMode::keep}) {
    EngineBench bench(2);
    const auto sink = bench.submit(make_request("a", iota_prompt(20), 30));
    bench.start();
    while (bench.engine->snapshot().steps < 3) REQUIRE(bench.io.poll_one() == 1);
    bool asleep = false, paused = false, again = false;
    begin(bench, bench.engine->sleep(SleepLevel::weights, PauseMode::keep), asleep);
    bench.io.poll();
    REQUIRE(asleep);
    begin(bench, bench.engine->pause(mode, false), paused);
    begin(bench, bench.engine->sleep(SleepLevel::discard, mode), again);
    bench.io.poll();
    CHECK(paused);
    CHECK(again);
    CHECK(bench.engine->sleep_level() == SleepLevel::discard);
    bool woken = false;
    begin(bench, bench.engine->wake_up({}), woken);
    bench.io.poll();
    CHECK(woken);
    bench.finish();
    if (mode == PauseMode::abort)
      CHECK(sink->reason() == FinishReason::abort);
    else
      CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 30));
  }
}

TEST_CASE("a pause that waits is over when the engine is resumed meanwhile, and holds up no other operation") {
  EngineBench bench(2);
  const auto sink = bench.submit(make_request("a", iota_prompt(20), 100));
  bench.start();
  while (bench.engine->snapshot().steps < 3) REQUIRE(bench.io.poll_one() == 1);
  bool paused = false, reset = false;
  begin(bench, bench.engine->pause(PauseMode::wait, false), paused);
  begin(bench, bench.engine->reset_prefix_cache(true), reset);
  while (!bench.engine->is_paused()) REQUIRE(bench.io.poll_one() == 1);
  REQUIRE_FALSE(paused);
  bench.engine->resume();
  while (!reset) REQUIRE(bench.io.poll_one() == 1);
  CHECK(paused);
  CHECK(bench.engine->is_live("a"));
  CHECK_FALSE(bench.engine->is_paused());
  bench.finish();
  CHECK(sink->only().tokens == bench.expected(iota_prompt(20), 100));
}

TEST_CASE("session: sampling that comes with input for a waiting turn brings its own end tokens") {
  EngineBench bench(1);
  const auto sink = open_session(bench, 4, 5);
  std::vector<TokenId> prompt = iota_prompt(4);
  prompt.push_back(9);
  Turn turn = make_turn({9}, 20);
  turn.sampling.emplace();
  turn.sampling->end_tokens = {bench.expected(prompt, 4).back()};
  REQUIRE(bench.engine->append("s", turn).has_value());
  bench.engine->close_session("s");
  bench.finish();
  CHECK(sink->answers.front() == bench.expected(prompt, 4));
  REQUIRE(sink->finishes.size() == 1);
  CHECK(sink->finishes[0].stop_token == turn.sampling->end_tokens[0]);
}

TEST_CASE("session: input for one that was aborted is refused, though its sink has not heard of the end yet") {
  EngineBench bench(1);
  const auto sink = open_session(bench, 4, 50);
  bench.start();
  while (bench.engine->snapshot().steps < 3) REQUIRE(bench.io.poll_one() == 1);
  bench.engine->abort("s");
  REQUIRE(sink->n_ends == 0);
  CHECK_FALSE(bench.engine->append("s", make_turn({1}, 5)).has_value());
  CHECK(bench.engine->violations() == std::vector<std::string>{});
  bench.finish();
  CHECK(sink->n_ends == 1);
}

TEST_CASE("session: the last turn reports what its KV still held as cached, as the turns before it do") {
  EngineBench bench(1);
  const auto sink = open_session(bench, 20, 5);
  sink->answered = [&] {
    REQUIRE(bench.engine->append("s", make_turn({7, 8}, 3)).has_value());
    bench.engine->close_session("s");
  };
  bench.start();
  bench.io.poll();
  bench.finish();
  REQUIRE(sink->usages.size() == 2);
  CHECK(sink->usages[0].n_cached == 0);
  CHECK(sink->usages[1].n_prompt == 26);
  CHECK(sink->usages[1].n_cached == 24);
}

}  // namespace
}  // namespace heddle::engine
