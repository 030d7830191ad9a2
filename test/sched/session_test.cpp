// Sessions, deferral, pauses and resets: what the scheduler does between and beside steps.
#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

const std::vector<TokenId> kMore = {71, 72, 73};

uint32_t limit(const SchedBench& bench, const Sequence& s, uint32_t n_more, uint32_t max_tokens) {
  return limit_of(s.n_known() + n_more, max_tokens, bench.scheduler.config());
}

TEST_CASE("session: a turn's last token is dropped, its KV stays, and the next turn computes only what is new") {
  SchedBench bench(SchedBench::config(16));
  Sequence& a = bench.add('A', 20);
  bench.step();
  bench.step();  // 22 tokens known, 21 computed
  bench.scheduler.end_turn(a);
  bench.check();
  CHECK(a.state == SequenceState::parked);
  CHECK(a.n_known() == 21);
  CHECK(bench.scheduler.n_running() == 0);
  CHECK(bench.scheduler.n_waiting() == 1);
  CHECK(bench.scheduler.n_deferred() == 1);
  CHECK(bench.scheduler.pool().n_held() == 2);
  CHECK(bench.plan() == "");  // it keeps nothing busy
  REQUIRE(bench.scheduler.can_continue(a));
  bench.scheduler.continue_turn(a, kMore, limit(bench, a, 3, 10));
  CHECK(bench.step() == "A3");
  CHECK(a.n_generated() == 1);
  CHECK(bench.step() == "A1");
}

TEST_CASE("session: rows in flight when a turn ends are discarded, and the next turn waits for them") {
  SchedBench bench(SchedBench::config(16));
  Sequence& a = bench.add('A', 20);
  bench.plan();
  bench.plan();
  bench.plan();
  CHECK(bench.commit() == "A");
  bench.scheduler.end_turn(a);
  bench.check();
  CHECK_FALSE(bench.scheduler.can_continue(a));
  CHECK(bench.commit() == "");
  CHECK_FALSE(bench.scheduler.can_continue(a));
  CHECK(bench.commit() == "");
  REQUIRE(bench.scheduler.can_continue(a));
  CHECK(bench.scheduler.counters().n_discarded_tokens == 2);
  CHECK(a.n_computed == 20);
  bench.scheduler.continue_turn(a, kMore, limit(bench, a, 3, 10));
  CHECK(bench.step() == "A3");
}

TEST_CASE(
    "session: parked ones hold a place among the running, and lose it only to a queue that nobody else can serve") {
  Config config = SchedBench::config(16);
  config.max_num_seqs = 2;
  SchedBench bench(config);
  Sequence& a = bench.add('A', 20);
  Sequence& b = bench.add('B', 20);
  bench.step();
  bench.scheduler.end_turn(a);
  bench.add('C', 4);
  CHECK(bench.step() == "B1");  // running + parked = max_num_seqs
  CHECK(bench.queue() == "C");
  bench.scheduler.end_turn(b);
  CHECK(bench.step() == "C4");  // A, idle the longest, gave way
  CHECK(bench.scheduler.counters().n_evicted_sessions == 1);
  CHECK(a.state == SequenceState::preempted);
  REQUIRE(bench.scheduler.can_continue(a));
  bench.scheduler.continue_turn(a, kMore, limit(bench, a, 3, 10));
  CHECK(bench.step() == "C1");  // B still holds its place
  bench.scheduler.finish(b);
  CHECK(bench.step() == "C1 A7");  // one block of 16 was still in the cache
}

TEST_CASE("session: one that was never planned takes more prompt") {
  SchedBench bench(SchedBench::config(16));
  Sequence& a = bench.add('A', 20);
  bench.scheduler.extend(a, kMore, limit(bench, a, 3, 10));
  CHECK(bench.step() == "A23");
  CHECK(a.n_prompt == 23);
}

TEST_CASE("session: a turn that ends while it is preempted waits for input in the queue") {
  SchedBench bench(SchedBench::config(6, 4));
  bench.add('A', 7);
  bench.add('B', 7);
  Sequence& c = bench.add('C', 7);
  bench.plan();
  bench.plan();
  bench.commit();
  CHECK(bench.plan() == "A1 B1");  // C is the victim, with a token in flight
  CHECK(bench.commit() == "ABC");
  bench.scheduler.end_turn(c);
  bench.check();
  CHECK(bench.scheduler.n_deferred() == 1);
  REQUIRE(bench.scheduler.can_continue(c));
  bench.scheduler.continue_turn(c, kMore, limit(bench, c, 3, 5));
  bench.check();
  CHECK(bench.scheduler.n_deferred() == 0);
  CHECK(c.n_prompt == 11);
}

TEST_CASE("session: tokens in flight when a turn ends are discarded, though it has lost its blocks meanwhile") {
  SchedBench bench(SchedBench::config(6, 4));
  bench.add('A', 6);
  bench.add('B', 6);
  Sequence& c = bench.add('C', 6);
  bench.plan();
  bench.plan();
  bench.plan();
  CHECK(bench.plan() == "A1 B1");  // C is the victim, with three tokens in flight
  REQUIRE(c.state == SequenceState::preempted);
  CHECK(bench.commit() == "ABC");
  bench.scheduler.end_turn(c);
  bench.check();
  CHECK(bench.commit() == "AB");
  CHECK(bench.commit() == "AB");
  CHECK(bench.scheduler.counters().n_discarded_tokens == 2);
  CHECK(c.n_known() == 6);
  REQUIRE(bench.scheduler.can_continue(c));
  bench.scheduler.continue_turn(c, kMore, limit(bench, c, 3, 5));
  CHECK(c.n_prompt == 9);
}

TEST_CASE("head_of_line_or_deferred: who waits for something else than room blocks nobody and keeps its place") {
  SchedBench bench(SchedBench::config(10));
  Sequence& a = bench.add('A', 60);
  bench.step();
  Sequence& b = bench.add('B', 100, 100, {.deferral = Deferral::grammar});  // 7 blocks
  bench.add('C', 10);
  CHECK(bench.scheduler.n_waiting() == 2);
  CHECK(bench.scheduler.n_deferred() == 1);
  CHECK(bench.step() == "A1 C10");
  CHECK(bench.scheduler.n_waiting() == 1);
  CHECK(bench.scheduler.n_deferred() == 1);
  bench.add('D', 10);
  CHECK(bench.queue() == "BD");
  bench.scheduler.defer(b, Deferral::none);
  CHECK(bench.scheduler.n_deferred() == 0);
  CHECK(bench.step() == "A1 C1");  // B needs 7 blocks, 5 are free: and now it is ahead of D
  CHECK(bench.queue() == "BD");
  bench.finish(a);
  CHECK(bench.step() == "C1 B100 D10");
}

TEST_CASE("watermark: beside running sequences a share of the blocks stays free; alone, a sequence may take them all") {
  Config config = SchedBench::config(10);
  config.watermark = 0.25;  // 3 blocks
  SchedBench bench(config);
  bench.add('A', 150);  // all 10
  CHECK(bench.step() == "A150");
  bench.finish(*bench.scheduler.running()[0]);
  bench.add('B', 16, 1000);
  bench.add('C', 96);  // 6 of 9
  CHECK(bench.step() == "B16 C96");
  bench.add('D', 16);
  CHECK(bench.step() == "B1 C1");
  CHECK(bench.queue() == "D");
}

TEST_CASE("max_long_partial_prefills: shorter prompts pass one that waits for another long one") {
  Config config = SchedBench::config(64);
  config.max_num_batched_tokens = 32;
  config.long_prefill_token_threshold = 16;
  config.max_long_partial_prefills = 1;
  SchedBench bench(config);
  bench.add('A', 40);
  bench.add('B', 40);
  bench.add('C', 10);
  CHECK(bench.step() == "A16 C10");
  CHECK(bench.step() == "A16 C1");
  CHECK(bench.step() == "A8 C1 B16");
}

TEST_CASE("preempt_last, by priority: the victim is the worst, and rows that it had in the plan return to the budget") {
  Config config = SchedBench::config(6, 4);
  config.policy = PolicyKind::priority;
  config.max_num_batched_tokens = 8;
  config.max_num_seqs = 3;
  SchedBench bench(config);
  Sequence& a = bench.add('A', 8, 100, {.priority = 5});
  CHECK(bench.step() == "A8");
  bench.add('B', 7, 100, {.priority = 1});
  CHECK(bench.step() == "A1 B7");  // A holds 3 blocks, B 2
  CHECK(bench.step() == "A1 B1");
  CHECK(bench.step() == "A1 B1");  // B's third block: all 6 are taken
  CHECK(bench.step() == "A1 B1");
  bench.plan();  // A needs a fourth block: it is the worst itself
  CHECK(a.state == SequenceState::preempted);
  CHECK(bench.queue() == "A");
  bench.commit();
  CHECK(bench.scheduler.counters().n_preemptions == 1);

  // The worst has been planned before the one that finds no block.
  SchedBench other(config);
  Sequence& x = other.add('X', 11, 100, {.priority = 9});
  CHECK(other.step() == "X8");
  other.add('Y', 12, 100, {.priority = 0});
  CHECK(other.step() == "X3 Y5");
  CHECK(other.plan() == "X1 Y7");
  other.commit();
  CHECK(other.plan() == "Y1");  // X had its row; Y needed the block
  CHECK(x.state == SequenceState::preempted);
  CHECK(x.n_placeholders == 0);
  CHECK(x.n_in_flight == 0);
  other.commit();
}

TEST_CASE(
    "priority: the queue is in order of priority, then arrival; nobody is preempted for a better one that waits") {
  Config config = SchedBench::config(64);
  config.policy = PolicyKind::priority;
  config.max_num_seqs = 1;
  SchedBench bench(config);
  bench.add('A', 4, 100, {.priority = 7});
  bench.step();
  bench.add('B', 4, 100, {.priority = 3});
  bench.add('C', 4, 100, {.priority = -1});
  bench.add('D', 4, 100, {.priority = 3});
  CHECK(bench.queue() == "CBD");
  CHECK(bench.step() == "A1");
  CHECK(bench.scheduler.counters().n_preemptions == 0);
}

TEST_CASE(
    "fair: a tenant that waits is served within ceil(cost / quantum) + depth steps, however many the other queued") {
  for (const uint32_t depth : {1u, 2u, 4u}) {
    for (const uint32_t cost : {7u, 64u, 200u}) {
      CAPTURE(depth);
      CAPTURE(cost);
      Config config = SchedBench::config(400);
      config.policy = PolicyKind::fair;
      config.fair_quantum = 32;
      config.max_num_seqs = 4;
      SchedBench bench(config);
      for (int i = 0; i < 500; ++i) bench.add(static_cast<char>('a' + i % 20), 40, 1000, {.tenant = "greedy"});
      for (int i = 0; i < 50; ++i) {
        while (bench.flight.size() < depth) bench.plan();
        bench.commit();
      }
      CHECK(bench.scheduler.n_running() == 4);
      Sequence& b = bench.add('B', cost, 10, {.tenant = "modest"});
      uint32_t n_steps = 0;
      while (b.n_computed < cost) {
        REQUIRE(++n_steps <= (cost + 31) / 32 + depth);
        while (bench.flight.size() >= depth) bench.commit();
        bench.plan();
      }
      MESSAGE("depth ", depth, ", cost ", cost, ": first token scheduled in step ", n_steps);
    }
  }
}

TEST_CASE("fair: a whole prompt that a fault took back is computed again, whatever rows are kept for another tenant") {
  Config config = SchedBench::config(25, 3);
  config.policy = PolicyKind::fair;
  config.enable_chunked_prefill = false;
  config.max_model_len = 65;
  config.max_num_batched_tokens = 86;
  for (const uint32_t quantum : {5u, 20u, 32u}) {
    config.fair_quantum = quantum;
    for (int n_before = 1; n_before < 12; ++n_before) {
      CAPTURE(quantum);
      CAPTURE(n_before);
      SchedBench bench(config);
      bench.add('A', 52, 13, {.tenant = "a"});
      bench.step();
      bench.add('B', 47, 7, {.tenant = "b"});  // its rows are kept for it as soon as it is due
      for (int i = 0; i < n_before && bench.scheduler.queue().size() > 0; ++i) bench.plan();
      bench.fault();
      CHECK(bench.step() != "");  // nobody would ask again
    }
  }
}

TEST_CASE("fair: an exchange takes the newest sequence of the tenant above its share") {
  Config config = SchedBench::config(64);
  config.policy = PolicyKind::fair;
  config.fair_quantum = 8;
  config.max_num_seqs = 2;
  SchedBench bench(config);
  Sequence& a = bench.add('A', 4, 1000, {.tenant = "x"});
  Sequence& b = bench.add('B', 4, 1000, {.tenant = "x"});
  bench.add('C', 4, 1000, {.tenant = "x"});
  for (int i = 0; i < 10; ++i) bench.step();
  Sequence& d = bench.add('D', 8, 1000, {.tenant = "y"});
  for (int i = 0; i < 3 && d.state == SequenceState::waiting; ++i) bench.step();
  CHECK(d.state == SequenceState::running);
  CHECK(a.state == SequenceState::running);
  CHECK(b.state == SequenceState::preempted);
  CHECK(bench.queue() == "BC");
}

TEST_CASE("pause: admission lets what has begun go on, all stands still, and neither counts as stuck") {
  SchedBench bench(SchedBench::config(64));
  bench.add('A', 20);
  bench.step();
  bench.add('B', 20);
  bench.scheduler.set_pause(Pause::admission);
  CHECK(bench.step() == "A1");
  CHECK(bench.queue() == "B");
  bench.scheduler.set_pause(Pause::all);
  CHECK(bench.plan() == "");
  CHECK(bench.scheduler.stuck_head() == nullptr);
  bench.scheduler.set_pause(Pause::none);
  CHECK(bench.step() == "A1 B20");
}

TEST_CASE("reset_prefix_cache: refused while a block is held; after everybody gave theirs up nothing hits") {
  SchedBench bench(SchedBench::config(64));
  const std::vector<TokenId> prompt(40, 5);
  bench.add('A', prompt);
  bench.step();
  CHECK_FALSE(bench.scheduler.reset_prefix_cache());
  bench.scheduler.preempt_all();
  bench.check();
  CHECK(bench.scheduler.pool().n_cached() == 2);
  CHECK(bench.scheduler.reset_prefix_cache());
  CHECK(bench.scheduler.pool().n_cached() == 0);
  CHECK(bench.scheduler.counters().n_cache_resets == 1);
  CHECK(bench.step() == "A41");  // with its first token, and nothing of it from the cache
}

}  // namespace
}  // namespace heddle::sched
