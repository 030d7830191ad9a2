// The scheduling rules, one test a rule. Block ids count from 0.
#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

using Ids = std::vector<uint32_t>;

// A decodes; its prompt was computed in a step of its own.
Sequence& decoding(SchedBench& bench, char name, uint32_t n_prompt, uint32_t max_tokens = 100) {
  Sequence& s = bench.add(name, n_prompt, max_tokens);
  bench.step();
  return s;
}

TEST_CASE("one_budget_running_first: prompts and decoding share one budget, running sequences first") {
  Config config = SchedBench::config(64);
  config.max_num_batched_tokens = 32;
  SchedBench bench(config);
  decoding(bench, 'A', 4);
  bench.add('B', 50);
  bench.add('C', 10);
  CHECK(bench.plan() == "A1 B31");
  CHECK(bench.commit() == "A");
  CHECK(bench.plan() == "A1 B19 C10");
  CHECK(bench.commit() == "ABC");  // first tokens of B and C
  CHECK(bench.plan() == "A1 B1 C1");
}

TEST_CASE("one_budget_running_first: the long-prefill threshold caps a prompt's rows in both loops") {
  Config config = SchedBench::config(64);
  config.max_num_batched_tokens = 32;
  config.long_prefill_token_threshold = 16;
  SchedBench bench(config);
  decoding(bench, 'A', 4);
  bench.add('B', 50);
  bench.add('C', 10);
  for (const char* expected : {"A1 B16 C10", "A1 B16 C1", "A1 B16 C1", "A1 B2 C1"}) CHECK(bench.step() == expected);
}

TEST_CASE("the long-prefill threshold does not slow down a prompt that is alone") {
  Config config = SchedBench::config(64);
  config.max_num_batched_tokens = 32;
  config.long_prefill_token_threshold = 16;
  SchedBench bench(config);
  bench.add('B', 50);
  CHECK(bench.step() == "B32");
}

TEST_CASE("without chunked prefill a prompt is computed in one step or not yet") {
  Config config = SchedBench::config(64);
  config.enable_chunked_prefill = false;
  config.max_model_len = config.max_num_batched_tokens = 32;
  SchedBench bench(config);
  decoding(bench, 'A', 4, 20);
  bench.add('B', 25, 7);
  bench.add('C', 10, 7);
  CHECK(bench.step() == "A1 B25");  // C's 10 rows do not fit beside them
  CHECK(bench.step() == "A1 B1 C10");
}

TEST_CASE("head_of_line: the first of the queue waits until all of its tokens fit, and nobody passes it") {
  SchedBench bench(SchedBench::config(10));
  decoding(bench, 'A', 60);
  bench.add('B', 100);  // 7 blocks; 6 are free
  bench.add('C', 10);   // 1 block
  CHECK(bench.scheduler.pool().n_held() == 4);
  CHECK(bench.step() == "A1");
  CHECK(bench.scheduler.n_waiting() == 2);
  CHECK(bench.queue() == "BC");
}

TEST_CASE("a prompt under way keeps the room for its later chunks: a second one is not admitted into it") {
  Config config = SchedBench::config(10);
  config.long_prefill_token_threshold = 16;
  SchedBench bench(config);
  bench.add('A', 110);  // 7 blocks, one of which its first chunk takes
  bench.add('B', 60);   // 4 blocks, of the 9 that are free
  for (int i = 0; i < 6; ++i) CHECK(bench.step() == "A16");
  CHECK(bench.step() == "A14");
  CHECK(bench.queue() == "B");
  CHECK(bench.scheduler.counters().n_preemptions == 0);
}

TEST_CASE("preempt_last: the sequence admitted last gives up its blocks, and goes first when there is room") {
  SchedBench bench(SchedBench::config(6, 4));
  Sequence& a = bench.add('A', 8);
  Sequence& b = bench.add('B', 8);
  Sequence& c = bench.add('C', 8);
  CHECK(bench.step() == "A8 B8 C8");
  CHECK(SchedBench::blocks(c) == Ids{4, 5});
  bench.add('D', 4);

  CHECK(bench.plan() == "A1 B1");  // D is not admitted by a plan that preempted
  CHECK(bench.queue() == "CD");
  CHECK(c.state == SequenceState::preempted);
  CHECK(c.n_computed == 0);
  CHECK(SchedBench::blocks(a) == Ids{0, 1, 5});  // C's tail block
  CHECK(SchedBench::blocks(b) == Ids{2, 3, 4});  // C's head block
  CHECK_FALSE(bench.scheduler.pool().hashed(BlockId(4)));
  CHECK_FALSE(bench.scheduler.pool().hashed(BlockId(5)));
  bench.commit();

  bench.finish(a);
  CHECK(bench.plan() == "B1 C9");
  CHECK(bench.queue() == "D");
  const PrefixStats& again = bench.scheduler.counters().again;
  CHECK(again.requests == 1);
  CHECK(again.queries == 9);
  CHECK(again.hits == 0);
  CHECK(bench.scheduler.counters().first.requests == 3);
  CHECK(bench.scheduler.counters().n_preemptions == 1);
}

TEST_CASE("several victims of one plan return in the order in which they were admitted") {
  SchedBench bench(SchedBench::config(6, 4));
  Sequence& a = bench.add('A', 15);  // 4 blocks
  bench.add('B', 4);
  bench.add('C', 4);
  CHECK(bench.step() == "A15 B4 C4");
  CHECK(bench.step() == "A1 B1");  // B's second block is C's
  CHECK(bench.queue() == "C");
  CHECK(bench.step() == "A1");  // A's fifth is B's
  CHECK(bench.queue() == "BC");
  CHECK(bench.scheduler.counters().n_preemptions == 2);
  bench.finish(a);
  CHECK(bench.step() == "B2 C5");  // B finds its first block again, C's was taken
}

TEST_CASE("preempt_in_flight: the victim's token in flight is delivered once, and it waits for it before it returns") {
  SchedBench bench(SchedBench::config(6, 4));
  Sequence& a = bench.add('A', 7);
  Sequence& b = bench.add('B', 7);
  Sequence& c = bench.add('C', 7);
  CHECK(bench.plan() == "A7 B7 C7");
  CHECK(bench.plan() == "A1 B1 C1");  // L1: the row of the 8th token, which is still a placeholder
  CHECK(bench.commit() == "ABC");     // W0: 8 known, 8 computed, the 9th in flight
  CHECK(c.n_known() == 8);
  CHECK(c.n_computed == 8);
  CHECK(c.n_placeholders == 1);
  bench.add('D', 2);

  CHECK(bench.plan() == "A1 B1");  // L2: each needs a third block
  CHECK(bench.queue() == "CD");
  CHECK(c.n_in_flight == 1);
  CHECK(a.blocks.size() == 3);
  CHECK(b.blocks.size() == 3);

  bench.finish(a);              // its blocks come back only after W2, but D could have a place
  CHECK(bench.plan() == "B1");  // C is not admitted while its token is in flight, nor D before it
  CHECK(bench.queue() == "CD");
  CHECK(bench.commit() == "BC");  // W1: C's token, once
  CHECK(c.n_known() == 9);
  CHECK(c.n_in_flight == 0);
  CHECK(bench.commit() == "B");    // W2
  CHECK(bench.plan() == "B1 C9");  // all 9, the delivered one included
  CHECK(bench.queue() == "D");
}

TEST_CASE("self_victim_never_fits: a sequence alone that outgrows the pool ends with what it has") {
  for (const int depth : {1, 2, 3}) {
    CAPTURE(depth);
    SchedBench bench(SchedBench::config(3, 4));
    Sequence& a = bench.add('A', 8, 10);
    std::string delivered;
    for (int i = 0; i < 50 && a.state != SequenceState::finished; ++i) {
      while (static_cast<int>(bench.flight.size()) < depth && !bench.plan().empty()) continue;
      delivered += bench.commit();
    }
    CHECK(delivered == "AAAAA");
    CHECK(a.n_known() == 13);
    CHECK(a.state == SequenceState::finished);
    CHECK(bench.scheduler.counters().n_preemptions == 0);
    CHECK(bench.plan() == "");
  }
}

TEST_CASE("self_victim_never_fits: the last sequence gives way to itself, and those before it go on") {
  SchedBench bench(SchedBench::config(3, 4));
  Sequence& a = bench.add('A', 7, 4);
  bench.add('B', 4, 4);
  CHECK(bench.step() == "A7 B4");
  CHECK(bench.step() == "A1");  // B needs a second block, and is the last
  CHECK(bench.queue() == "B");
  CHECK(bench.step() == "A1");
  CHECK(bench.step() == "A1");
  CHECK(a.state == SequenceState::finished);
  CHECK(bench.step() == "B5");
  CHECK(bench.scheduler.counters().n_preemptions == 1);
}

TEST_CASE("full_hit_and_free_order: released tail first, unhashed to the front; a full hit recomputes its last block") {
  SchedBench bench(SchedBench::config(8));
  std::vector<TokenId> prompt(56);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i);
  Sequence& a = bench.add('A', prompt, 1);
  CHECK(bench.step() == "A56");
  CHECK(a.state == SequenceState::finished);
  CHECK(bench.free_list() == Ids{3, 4, 5, 6, 7, 2, 1, 0});
  CHECK(bench.scheduler.pool().n_held() == 0);
  CHECK(bench.scheduler.pool().n_cached() == 3);

  Sequence& b = bench.add('B', std::vector<TokenId>(prompt.begin(), prompt.begin() + 48), 1);
  CHECK(bench.plan() == "B16");  // a full hit of 3 blocks gives 2: the last token's logits are needed
  CHECK(SchedBench::blocks(b) == Ids{0, 1, 3});
  CHECK(b.n_cached == 32);
  CHECK(bench.free_list() == Ids{4, 5, 6, 7, 2});
  const PrefixStats& first = bench.scheduler.counters().first;
  CHECK(first.queries == 56 + 48);
  CHECK(first.hits == 32);

  bench.add('C', 79, 1);  // 5 blocks: all that is free
  CHECK(bench.plan() == "C79");
  CHECK(bench.free_list() == Ids{});
  CHECK_FALSE(bench.scheduler.pool().hashed(BlockId(2)));
}

TEST_CASE("two equal prompts in one step share nothing; the next one finds what they computed") {
  SchedBench bench(SchedBench::config(16));
  const std::vector<TokenId> prompt(32, 5);
  bench.add('A', prompt, 1);
  bench.add('B', prompt, 1);
  CHECK(bench.step() == "A32 B32");
  CHECK(bench.scheduler.counters().first.hits == 0);
  CHECK(bench.scheduler.pool().n_cached() == 2);  // the second copy stays out
  bench.add('C', std::vector<TokenId>(40, 5), 1);
  CHECK(bench.step() == "C8");
}

TEST_CASE("generated tokens are hashed too: the next turn of a chat hits") {
  SchedBench bench(SchedBench::config(16, 4));
  Sequence& a = bench.add('A', 6, 10);
  while (a.state != SequenceState::finished) bench.step();
  std::vector<TokenId> next_turn = a.tokens;  // 16 tokens, of which 15 were computed: 3 full blocks
  next_turn.push_back(77);
  Sequence& b = bench.add('B', next_turn, 1);
  CHECK(bench.step() == "B5");
  CHECK(b.n_cached == 12);
}

TEST_CASE("a salt is a domain of its own: hits inside, misses across") {
  SchedBench bench(SchedBench::config(32));
  const std::vector<TokenId> prompt(40, 5);
  const auto rows = [&](char name, std::string salt) {
    bench.add(name, prompt, 1, std::move(salt));
    return bench.step();
  };
  CHECK(rows('A', "") == "A40");
  CHECK(rows('B', "a") == "B40");
  CHECK(rows('C', "b") == "C40");
  CHECK(rows('D', "a") == "D8");
  CHECK(rows('E', "") == "E8");
}

TEST_CASE("blocks are shareable only when computed: an aborted or voided step leaves no hash") {
  SchedBench bench(SchedBench::config(16));
  const std::vector<TokenId> prompt(40, 5);
  Sequence& a = bench.add('A', prompt, 1);
  bench.plan();
  bench.finish(a);
  CHECK(bench.scheduler.pool().n_held() == 3);  // in flight
  bench.commit();
  CHECK(bench.scheduler.pool().n_held() == 0);
  CHECK(bench.scheduler.pool().n_cached() == 0);
  bench.add('B', prompt, 1);
  CHECK(bench.plan() == "B40");
  bench.fault();
  CHECK(bench.scheduler.pool().n_cached() == 0);
  CHECK(bench.plan() == "B40");
}

TEST_CASE("prefix caching off: nothing is hashed, looked up or counted") {
  Config config = SchedBench::config(16);
  config.enable_prefix_caching = false;
  SchedBench bench(config);
  const std::vector<TokenId> prompt(40, 5);
  bench.add('A', prompt, 1);
  CHECK(bench.step() == "A40");
  bench.add('B', prompt, 1);
  CHECK(bench.step() == "B40");
  CHECK(bench.scheduler.pool().n_cached() == 0);
  CHECK(bench.scheduler.counters().first.requests == 0);
}

}  // namespace
}  // namespace heddle::sched
