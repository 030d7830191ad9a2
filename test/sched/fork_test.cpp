// n sequences from one prompt: computed once, shared block by block, copied on write.
#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

using Ids = std::vector<uint32_t>;

TEST_CASE("fork: two sequences of one prompt take its rows once, sample twice from one row, and copy one block") {
  SchedBench bench(SchedBench::config(16));
  const auto family = bench.add_family("AB", 20);
  const Sequence &a = *family[0], &b = *family[1];
  CHECK(bench.scheduler.n_waiting() == 2);
  CHECK(bench.plan() == "A20 B0");
  const StepPlan& first = *bench.flight.front();
  CHECK(first.n_rows == 20);
  CHECK(first.n_sampled == 2);
  CHECK(first.seqs[1].logits_of == 0);
  CHECK(first.joined.size() == 2);
  CHECK(bench.scheduler.pool().n_held() == 2);  // the partial block is shared until somebody writes
  CHECK(bench.commit() == "AB");

  CHECK(bench.plan() == "A1 B1");  // 22 rows in all
  CHECK(bench.scheduler.pool().n_held() == 3);
  CHECK(bench.flight.front()->copies.size() == 1);
  CHECK(bench.scheduler.counters().n_copied_blocks == 1);
  CHECK(SchedBench::blocks(a)[0] == SchedBench::blocks(b)[0]);
  CHECK(SchedBench::blocks(a)[1] != SchedBench::blocks(b)[1]);
  CHECK(bench.commit() == "AB");
  // 2.22: the second counts as a look-up that hit in full.
  CHECK(bench.scheduler.counters().first.requests == 2);
  CHECK(bench.scheduler.counters().first.queries == 40);
  CHECK(bench.scheduler.counters().first.hits == 20);
  CHECK(b.n_cached == 20);
}

TEST_CASE("fork: a prompt of whole blocks is shared without a copy") {
  SchedBench bench(SchedBench::config(16));
  bench.add_family("ABC", 32);
  CHECK(bench.step() == "A32 B0 C0");
  CHECK(bench.step() == "A1 B1 C1");
  CHECK(bench.scheduler.counters().n_copied_blocks == 0);
  CHECK(bench.scheduler.pool().n_held() == 2 + 3);
}

TEST_CASE("fork: a chunked prompt is forked by its last chunk alone") {
  Config config = SchedBench::config(16);
  config.max_num_batched_tokens = 8;
  SchedBench bench(config);
  bench.add_family("AB", 20);
  CHECK(bench.step() == "A8");
  CHECK(bench.step() == "A8");
  CHECK(bench.step() == "A4 B0");
  CHECK(bench.step() == "A1 B1");
}

TEST_CASE("fork: the family waits for a slot for each, and those behind it wait with it") {
  Config config = SchedBench::config(16);
  config.max_num_seqs = 3;
  SchedBench bench(config);
  Sequence& x = bench.add('X', 4);
  bench.step();
  bench.add_family("ABC", 20);
  bench.add('D', 4);
  CHECK(bench.step() == "X1");
  bench.finish(x);
  CHECK(bench.step() == "A20 B0 C0");
  CHECK(bench.queue() == "D");
}

TEST_CASE("fork: more sequences than slots: the rest queue once the prompt is in the cache, and hit") {
  Config config = SchedBench::config(16);
  config.max_num_seqs = 2;
  SchedBench bench(config);
  const auto family = bench.add_family("ABCD", 33);
  CHECK(bench.plan() == "A33 B0");
  CHECK(bench.queue() == "");  // C and D do not compute the prompt beside A
  bench.commit();
  CHECK(bench.queue() == "CD");
  bench.finish(*family[0]);
  bench.finish(*family[1]);
  CHECK(bench.step() == "C1 D1");
  CHECK(family[2]->n_cached == 32);
}

TEST_CASE("fork: the owner's end before its last chunk passes the prompt on") {
  Config config = SchedBench::config(16);
  config.max_num_batched_tokens = 8;
  SchedBench bench(config);
  const auto family = bench.add_family("ABC", 20);
  CHECK(bench.plan() == "A8");
  bench.finish(*family[0]);
  CHECK(bench.queue() == "B");
  CHECK(bench.scheduler.n_waiting() == 2);
  bench.commit();
  CHECK(bench.step() == "B8");
  bench.finish(*family[2]);  // still attached
  CHECK(bench.step() == "B8");
  CHECK(bench.step() == "B4");
  CHECK(bench.scheduler.n_waiting() == 0);
}

TEST_CASE("fork: with no block for a copy the youngest gives way, and who is left alone with a block writes in place") {
  SchedBench bench(SchedBench::config(6, 4));
  Sequence& x = bench.add('X', 9);  // 3 blocks
  bench.step();
  bench.add_family("AB", 9);  // 3 blocks
  CHECK(bench.plan() == "X1 A9 B0");
  bench.commit();
  CHECK(bench.plan() == "X1 A1");
  CHECK(bench.flight.front()->copies.empty());
  CHECK(bench.queue() == "B");
  bench.commit();
  bench.finish(x);
  CHECK(bench.plan() == "A1 B2");  // two blocks of the prompt are in the cache
}

TEST_CASE("fork: an owner that is preempted in its prompt keeps its forks, and gives back their slots") {
  Config config = SchedBench::config(5, 4);
  config.max_num_batched_tokens = 8;
  config.max_num_seqs = 4;
  SchedBench bench(config);
  Sequence& y = bench.add('Y', 7, 20);  // 2 blocks
  bench.step();
  bench.add_family("AB", 12);
  CHECK(bench.step() == "Y1 A7");  // 2 and 2 blocks
  CHECK(bench.step() == "Y1");     // Y's third: A, with one chunk missing, has none
  CHECK(bench.queue() == "A");
  CHECK(bench.scheduler.n_waiting() == 2);
  bench.finish(y);
  CHECK(bench.step() == "A8 B0");  // its first block was still in the cache
  CHECK(bench.step() == "A1 B1");
}

TEST_CASE("fork: a voided step takes its forks back, and a copy that did not happen is computed again") {
  SchedBench bench(SchedBench::config(16));
  bench.add_family("AB", 20);
  CHECK(bench.plan() == "A20 B0");
  CHECK(bench.plan() == "A1 B1");
  bench.fault();
  CHECK(bench.queue() == "B");
  CHECK(bench.plan() == "A20 B20");
  bench.fault();

  SchedBench late(SchedBench::config(16));
  const auto family = late.add_family("AB", 20);
  CHECK(late.plan() == "A20 B0");
  CHECK(late.plan() == "A1 B1");
  CHECK(late.plan() == "A1 B1");
  late.commit();  // the prompt is there, the two steps behind it are void: one of them had the copy
  late.fault();
  CHECK(late.plan() == "A5 B1");  // whose copy it was computes rows 16 to 20 again
  CHECK(family[0]->blocks[1] != family[1]->blocks[1]);
}

TEST_CASE("equal_prompts_in_one_step: hits are 0 and 0, and the blocks are one once they are committed") {
  for (const int depth : {1, 3}) {
    CAPTURE(depth);
    SchedBench bench(SchedBench::config(16));
    const std::vector<TokenId> prompt(40, 5);
    Sequence& a = bench.add('A', prompt);
    Sequence& b = bench.add('B', prompt);
    CHECK(bench.plan() == "A40 B40");
    for (int i = 1; i < depth; ++i) bench.plan();
    CHECK(bench.scheduler.pool().n_held() == 6);
    bench.commit();
    CHECK(bench.scheduler.counters().first.hits == 0);
    CHECK(bench.scheduler.n_merged_blocks() == 2);
    CHECK(bench.scheduler.pool().n_held() == 4);
    CHECK(SchedBench::blocks(a)[0] == SchedBench::blocks(b)[0]);
    CHECK(SchedBench::blocks(a)[1] == SchedBench::blocks(b)[1]);
    CHECK(SchedBench::blocks(a)[2] != SchedBench::blocks(b)[2]);
  }
}

TEST_CASE("equal_prompts_in_one_step: a voided step leaves no hash") {
  SchedBench bench(SchedBench::config(16));
  const std::vector<TokenId> prompt(32, 5);
  bench.add('A', prompt);
  bench.add('B', prompt);
  bench.plan();
  bench.fault();
  CHECK(bench.scheduler.n_merged_blocks() == 0);
  CHECK(bench.plan() == "A32 B32");
}

}  // namespace
}  // namespace heddle::sched
