// The order of launches and waits, by the call trace of the stub: "L0 L1 W0" = step 0 and 1 launched, then result 0
// taken.
#include <boost/asio/post.hpp>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

TEST_CASE("fill_before_drain: the pipeline is filled before the oldest result is awaited") {
  const std::vector<std::pair<uint32_t, std::string>> table = {
      {1, "L0 W0 L1 W1 L2 W2 L3 W3 L4 W4 L5 W5 L6 W6 L7 W7 L8 W8 L9 W9"},
      {2, "L0 L1 W0 L2 W1 L3 W2 L4 W3 L5 W4 L6 W5 L7 W6 L8 W7 L9 W8 W9"},
      {3, "L0 L1 L2 W0 L3 W1 L4 W2 L5 W3 L6 W4 L7 W5 L8 W6 L9 W7 W8 W9"},
  };
  for (const auto& [depth, order] : table) {
    CAPTURE(depth);
    EngineBench bench(depth);
    const auto sink = bench.submit(make_request("a", iota_prompt(4), 10));
    bench.finish();
    CHECK(bench.trace->text() == order);
    CHECK(sink->only().tokens == bench.expected(iota_prompt(4), 10));
    CHECK(sink->reason() == FinishReason::length);
  }
}

TEST_CASE("no_needless_launch: no row is planned past max_tokens, whatever the depth") {
  EngineBench three(3);
  const auto sink = three.submit(make_request("a", iota_prompt(10), 3));
  three.finish();
  CHECK(three.trace->text() == "L0 L1 L2 W0 W1 W2");
  CHECK(sink->only().tokens.size() == 3);
  CHECK(three.engine->snapshot().discarded_tokens == 0);

  EngineBench one(3);
  one.submit(make_request("a", iota_prompt(10), 1));
  one.finish();
  CHECK(one.trace->text() == "L0 W0");
  CHECK(one.engine->snapshot().steps == 1);
}

TEST_CASE("late_stop: a row launched before the host saw the stop token is dropped, and counts as nothing") {
  EngineBench bench(2);
  bench.config.primary_eos = 2;
  bench.stub.next = [](std::span<const TokenId> prefix, uint64_t) -> TokenId {
    return prefix.size() == 4 ? 7 : prefix.size() == 5 ? 2 : 9;
  };
  Snapshot after_stop;
  auto sink = bench.submit(make_request("a", {10, 11, 12, 13}, 20));
  sink->also = [&](const Delta& delta) {
    if (delta.finish) after_stop = bench.engine->snapshot();
  };
  bench.finish();
  CHECK(bench.trace->text() == "L0 L1 W0 L2 W1 W2");
  CHECK(sink->only().tokens == std::vector<TokenId>{7, 2});
  CHECK(sink->reason() == FinishReason::stop);
  CHECK(sink->only().finish->stop_token == -1);
  CHECK(sink->usage.n_generated == 2);
  CHECK(after_stop.running == 0);
  CHECK(after_stop.in_flight == 1);
  const Snapshot end = bench.engine->snapshot();
  CHECK(end.generation_tokens == 2);
  CHECK(end.discarded_tokens == 1);
  CHECK(end.finished_stop == 1);
}

TEST_CASE("late_stop: at most depth - 1 rows are lost") {
  for (const uint32_t depth : {1u, 2u, 3u, 4u}) {
    CAPTURE(depth);
    EngineBench bench(depth);
    bench.config.primary_eos = 2;
    bench.stub.next = [](std::span<const TokenId> prefix, uint64_t) -> TokenId { return prefix.size() == 12 ? 2 : 9; };
    bench.submit(make_request("a", {10, 11, 12, 13}, 100));
    bench.finish();
    CHECK(bench.engine->snapshot().discarded_tokens == depth - 1);
  }
}

// Counts the turns of the loop that other handlers get while the engine works.
struct Ticker {
  EngineBench& bench;
  int ticks = 0;
  void tick() {
    if (!bench.running) return;
    ++ticks;
    boost::asio::post(bench.io, [this] { tick(); });
  }
};

TEST_CASE("the loop serves other handlers between turns, even when every result is there at once") {
  EngineBench bench(3);
  bench.submit(make_request("a", iota_prompt(4), 50));
  bench.start();
  Ticker ticker{bench};
  ticker.tick();
  bench.finish();
  CHECK(ticker.ticks >= 50);
}

TEST_CASE("an idle engine runs no turn until it is woken") {
  EngineBench bench(2);
  bench.build();
  bench.start();
  bench.io.poll();
  bench.io.restart();
  CHECK(bench.io.poll() == 0);  // nothing is ready: it sleeps on a timer that never expires
  CHECK(bench.running);
  const auto sink = bench.submit(make_request("a", iota_prompt(4), 3));
  bench.io.restart();
  bench.io.poll();
  CHECK(sink->n_ends == 1);
  bench.io.restart();
  bench.finish();
}

}  // namespace
}  // namespace heddle::engine
