// Sessions: requests that are given more input while they wait and after they have answered.
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

// Remembers the answers of the turns.
struct Conversation final : OutputSink {
  std::vector<std::vector<TokenId>> answers{{}};
  std::vector<Usage> usages;
  std::vector<FinishReason> reasons;
  int n_ends = 0;
  std::function<void()> answered;
  void on_delta(const Delta& delta) override {
    REQUIRE(n_ends == 0);
    answers.back().insert(answers.back().end(), delta.tokens.begin(), delta.tokens.end());
    if (delta.finish) reasons.push_back(delta.finish->reason);
  }
  void on_turn(const Usage& usage, const Times& times) override {
    CHECK(times.first_token >= times.scheduled);
    CHECK(times.scheduled >= times.queued);
    usages.push_back(usage);
    answers.emplace_back();
    if (answered) answered();
  }
  void on_end(const Usage& usage, const Times&) override {
    usages.push_back(usage);
    ++n_ends;
  }
};

struct SessionBench : EngineBench {
  std::shared_ptr<Conversation> sink = std::make_shared<Conversation>();
  explicit SessionBench(uint32_t depth, uint32_t n_blocks = 64) : EngineBench(depth, n_blocks) {}
  void open(uint32_t max_tokens) {
    if (!engine) build();
    Request request = make_request("s", iota_prompt(20), max_tokens);
    request.session = true;
    REQUIRE(engine->submit(std::move(request), sink).has_value());
  }
  static Turn turn(uint32_t n, TokenId first, uint32_t max_tokens) {
    Turn turn;
    turn.tokens = iota_prompt(n, first);
    turn.max_tokens = max_tokens;
    return turn;
  }
  // What the conversation must be: each answer without its last token is followed by the next input.
  std::vector<std::vector<TokenId>> expected_answers(const std::vector<Turn>& turns, uint32_t max_tokens) const {
    std::vector<TokenId> known = iota_prompt(20);
    std::vector<std::vector<TokenId>> answers{expected(known, max_tokens)};
    for (const Turn& t : turns) {
      known.insert(known.end(), answers.back().begin(), answers.back().end() - 1);
      known.insert(known.end(), t.tokens.begin(), t.tokens.end());
      answers.push_back(expected(known, t.max_tokens));
    }
    return answers;
  }
};

TEST_CASE("session: input after an answer continues from its KV, whatever the depth; each turn reports stop") {
  for (const uint32_t depth : {1u, 2u, 4u}) {
    CAPTURE(depth);
    SessionBench bench(depth);
    const std::vector<Turn> turns = {SessionBench::turn(3, 100, 6), SessionBench::turn(17, 200, 4)};
    size_t next = 0;
    bench.sink->answered = [&] {
      CHECK(bench.engine->violations() == std::vector<std::string>{});
      if (next < turns.size())
        REQUIRE(bench.engine->append("s", turns[next++]).has_value());
      else
        bench.engine->close_session("s");
    };
    bench.open(5);
    bench.start();
    bench.io.poll();
    bench.finish();
    auto expected = bench.expected_answers(turns, 5);
    expected.emplace_back();  // opened by on_turn, never used
    CHECK(bench.sink->answers == expected);
    CHECK(bench.sink->reasons == std::vector(3, FinishReason::stop));
    CHECK(bench.sink->n_ends == 1);
    REQUIRE(bench.sink->usages.size() == 4);
    CHECK(bench.sink->usages[1].n_prompt == 20 + 4 + 3);
    CHECK(bench.sink->usages[1].n_cached == 24);  // all that was computed before
    CHECK(bench.sink->usages[1].n_generated == 6);
    CHECK(bench.runner->n_rows() == 20 + 4 + 3 + 5 + 17 + 3);
    const Snapshot s = bench.engine->snapshot();
    CHECK(s.submitted == 3);
    CHECK(s.finished_stop == 3);
    CHECK(s.finished_abort == 0);
  }
}

TEST_CASE("session: input that comes while it waits joins the prompt, while it answers it is the next turn") {
  SessionBench bench(2);
  bench.open(5);
  REQUIRE(bench.engine->append("s", SessionBench::turn(3, 100, 7)).has_value());
  CHECK(bench.engine->snapshot().submitted == 1);
  bool appended = false;
  bench.sink->answered = [&] {
    if (bench.sink->usages.size() == 2) bench.engine->close_session("s");
  };
  bench.start();
  boost::asio::post(bench.io, [&] {
    // The first step is in flight.
    REQUIRE(bench.engine->append("s", SessionBench::turn(4, 300, 3)).has_value());
    appended = true;
    CHECK(bench.engine->snapshot().submitted == 2);
  });
  bench.io.poll();
  bench.finish();
  CHECK(appended);
  std::vector<TokenId> prompt = iota_prompt(20);
  const auto more = iota_prompt(3, 100);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const auto first = bench.expected(prompt, 7);
  REQUIRE(bench.sink->answers.size() >= 2);
  CHECK(bench.sink->answers[0] == first);
  prompt.insert(prompt.end(), first.begin(), first.end() - 1);
  const auto last = iota_prompt(4, 300);
  prompt.insert(prompt.end(), last.begin(), last.end());
  CHECK(bench.sink->answers[1] == bench.expected(prompt, 3));
}

TEST_CASE(
    "session: parked it keeps nothing busy and holds its blocks; abort and close end it, and no turn is counted "
    "twice") {
  for (const bool by_abort : {true, false}) {
    CAPTURE(by_abort);
    SessionBench bench(1);
    bench.open(5);
    bench.start();
    bench.io.poll();  // everything there is to do
    const Snapshot parked = bench.engine->snapshot();
    CHECK(parked.running == 0);
    CHECK(parked.waiting == 1);
    CHECK(parked.deferred == 1);
    CHECK(parked.parked_sessions == 1);
    CHECK(parked.blocks_held == 2);
    CHECK(parked.finished_stop == 1);
    CHECK(bench.sink->n_ends == 0);
    if (by_abort)
      CHECK(bench.engine->abort("s"));
    else
      bench.engine->close_session("s");
    bench.finish();
    CHECK(bench.sink->n_ends == 1);
    const Snapshot s = bench.engine->snapshot();
    CHECK(s.submitted == 1);
    CHECK(s.finished_stop == 1);
    CHECK(s.finished_abort == 0);
  }
}

TEST_CASE("session: an abort in a turn ends that turn and those to come, each once") {
  SessionBench bench(2);
  bench.open(50);
  bench.start();
  boost::asio::post(bench.io, [&] {
    REQUIRE(bench.engine->append("s", SessionBench::turn(4, 300, 3)).has_value());
    REQUIRE(bench.engine->append("s", SessionBench::turn(4, 400, 3)).has_value());
    bench.engine->abort("s");
  });
  bench.io.poll();
  bench.finish();
  CHECK(bench.sink->n_ends == 1);
  CHECK(bench.sink->reasons == std::vector{FinishReason::abort});
  CHECK(bench.engine->snapshot().submitted == 3);
  CHECK(bench.engine->snapshot().finished_abort == 3);
}

TEST_CASE("session: what would outgrow the model or the pool, and input for what takes none, is refused by name") {
  SessionBench bench(1, 8);
  bench.config.scheduler.max_model_len = 100;
  bench.open(5);
  const auto refused = [&](Turn turn) {
    const auto result = bench.engine->append("s", std::move(turn));
    REQUIRE_FALSE(result.has_value());
    return result.error();
  };
  CHECK(refused(SessionBench::turn(76, 1, 5)).message.find("96 tokens so far") != std::string::npos);
  CHECK(refused(SessionBench::turn(0, 1, 5)).message == "prompt: must have at least one token");
  CHECK(refused(SessionBench::turn(3, 1, 0)).message == "max_tokens: must be at least 1");
  CHECK(bench.engine->append("t", SessionBench::turn(3, 1, 1)).error().kind == Refusal::Kind::unknown_id);
  bench.submit(make_request("plain", iota_prompt(4), 3));
  CHECK(bench.engine->append("plain", SessionBench::turn(3, 1, 1)).error().message == "request plain is no session");
  bench.engine->close_session("s");
  CHECK(refused(SessionBench::turn(3, 1, 1)).message == "session s takes no more input");
  Request several = make_request("n", iota_prompt(4), 3);
  several.session = true;
  several.n = 2;
  CHECK(bench.refusal_of(std::move(several)).message == "n: must be 1 in a session");
  bench.finish();
  CHECK(bench.sink->n_ends == 1);
}

TEST_CASE("session: while the engine is paused no turn begins; it does when the engine goes on") {
  for (const PauseMode mode : {PauseMode::wait, PauseMode::keep}) {
    CAPTURE(static_cast<int>(mode));
    SessionBench bench(2);
    bench.open(5);
    bench.start();
    bench.io.poll();
    bool paused = false;
    boost::asio::co_spawn(bench.io, bench.engine->pause(mode, false),
                          [&paused](const std::exception_ptr&) { paused = true; });
    bench.io.poll();
    REQUIRE(paused);
    const std::vector<Turn> turns = {SessionBench::turn(3, 100, 6)};
    REQUIRE(bench.engine->append("s", turns[0]).has_value());
    bench.io.poll();
    CHECK(bench.sink->usages.size() == 1);
    CHECK(bench.runner->n_rows() == 24);
    bench.engine->resume();
    bench.io.poll();
    REQUIRE(bench.sink->usages.size() == 2);
    bench.finish();
    CHECK(bench.sink->answers[1] == bench.expected_answers(turns, 5)[1]);
  }
}

TEST_CASE("session: blocks that others need are given up between turns, and the next turn is computed anew") {
  SessionBench bench(1, 4);
  bench.open(5);
  bench.start();
  bench.io.poll();
  CHECK(bench.engine->snapshot().parked_sessions == 1);
  const auto other = bench.submit(make_request("big", iota_prompt(50, 500), 10));
  bench.io.poll();
  CHECK(other->n_ends == 1);
  CHECK(other->only().tokens == bench.expected(iota_prompt(50, 500), 10));
  CHECK(bench.engine->snapshot().evicted_sessions == 1);
  const std::vector<Turn> turns = {SessionBench::turn(3, 100, 6)};
  REQUIRE(bench.engine->append("s", turns[0]).has_value());
  bench.engine->close_session("s");
  bench.finish();
  CHECK(bench.sink->answers == bench.expected_answers(turns, 5));
}

}  // namespace
}  // namespace heddle::engine
