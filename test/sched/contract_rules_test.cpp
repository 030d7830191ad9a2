// The scheduling rules that a client of vLLM's scheduler relies on, each a table.
#include <array>
#include <string>
#include <vector>

#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

Config with(PolicyKind policy, uint32_t n_blocks, uint32_t block_size) {
  Config config = SchedBench::config(n_blocks, block_size);
  config.policy = policy;
  return config;
}

TEST_CASE("one_budget: prompts and decoding draw on the same rows of a step") {
  struct Row {
    uint32_t budget, n_decoding;
    std::vector<uint32_t> prompts;  // of P, Q, R
    std::string first, second;
  };
  for (const Row& row : std::initializer_list<Row>{{16, 0, {50}, "P16", "P16"},
                                                   {16, 3, {50}, "A1 B1 C1 P13", "A1 B1 C1 P13"},
                                                   {16, 3, {13}, "A1 B1 C1 P13", "A1 B1 C1 P1"},
                                                   {16, 3, {10, 10}, "A1 B1 C1 P10 Q3", "A1 B1 C1 P1 Q7"},
                                                   {16, 1, {15, 1}, "A1 P15", "A1 P1 Q1"},
                                                   {8, 4, {2, 1, 9}, "A1 B1 C1 D1 P2 Q1 R1", "A1 B1 C1 D1 P1 Q1 R2"},
                                                   {32, 1, {50, 10}, "A1 P31", "A1 P19 Q10"}}) {
    CAPTURE(row.first);
    Config config = SchedBench::config(64);
    config.max_num_batched_tokens = row.budget;
    SchedBench bench(config);
    for (uint32_t i = 0; i < row.n_decoding; ++i) {
      bench.add(static_cast<char>('A' + i), 2);
      bench.step();
    }
    for (size_t i = 0; i < row.prompts.size(); ++i) bench.add(static_cast<char>('P' + i), row.prompts[i]);
    CHECK(bench.step() == row.first);
    CHECK(bench.step() == row.second);
  }
}

TEST_CASE("running_first: what has begun is served before anything is admitted, by every policy") {
  for (const PolicyKind policy : {PolicyKind::fcfs, PolicyKind::priority, PolicyKind::fair}) {
    CAPTURE(static_cast<int>(policy));
    Config config = with(policy, 64, 16);
    config.max_num_batched_tokens = 16;
    SchedBench bench(config);
    Sequence& first = bench.add('A', 40);
    CHECK(bench.step() == "A16");
    first.priority = 9;  // a better one that waits (0) changes nothing
    bench.add('B', 4);
    CHECK(bench.step() == "A16");
    CHECK(bench.step() == "A8 B4");
    CHECK(bench.step() == "A1 B1");
  }
}

// A and B (8 tokens) and C (16) fill the pool of 8 blocks of 4. The next row of A needs a block: C gives up its four, A
// and B take one each, and two stay free, of which D needs one.
TEST_CASE("no_admission_after_preemption: a step that preempted admits nobody, though there would be room") {
  struct Row {
    PolicyKind policy;
    int32_t priority_of_c;
    std::string first, first_queue, second, second_queue;
  };
  for (const Row& row : {Row{PolicyKind::fcfs, 0, "A1 B1", "CD", "A1 B1", "CD"},  // C stands before D and does not fit
                         Row{PolicyKind::fair, 0, "A1 B1", "CD", "A1 B1", "CD"},  // one tenant: the same
                         Row{PolicyKind::priority, 5, "A1 B1", "DC", "A1 B1 D3", "C"}}) {
    CAPTURE(static_cast<int>(row.policy));
    SchedBench bench(with(row.policy, 8, 4));
    bench.add('A', 8);
    bench.add('B', 8);
    Sequence& c = bench.add('C', 16);
    CHECK(bench.step() == "A8 B8 C16");
    c.priority = row.priority_of_c;
    bench.add('D', 3);
    CHECK(bench.step() == row.first);
    CHECK(bench.queue() == row.first_queue);
    CHECK(bench.scheduler.pool().n_free() == 2);
    CHECK(bench.scheduler.counters().n_preemptions == 1);
    CHECK(bench.step() == row.second);
    CHECK(bench.queue() == row.second_queue);
  }
}

TEST_CASE("last_token_recomputed: a full hit leaves the last token, and with it the block that it is in") {
  struct Row {
    uint32_t n_prompt, n_rows;  // the second time
  };
  for (const Row& row : {Row{15, 15}, Row{16, 16}, Row{17, 1}, Row{31, 15}, Row{32, 16}, Row{33, 1}, Row{40, 8},
                         Row{48, 16}, Row{49, 1}}) {
    CAPTURE(row.n_prompt);
    SchedBench bench(SchedBench::config(16));
    std::vector<TokenId> prompt(row.n_prompt);
    for (uint32_t i = 0; i < row.n_prompt; ++i) prompt[i] = static_cast<TokenId>(i);
    bench.add('A', prompt, 1);
    CHECK(bench.step() == fmt::format("A{}", row.n_prompt));
    Sequence& again = bench.add('B', prompt, 1);
    CHECK(bench.plan() == fmt::format("B{}", row.n_rows));
    CHECK(again.n_cached == row.n_prompt - row.n_rows);
    CHECK(bench.commit() == "B");  // there were logits to sample from
  }
}

// A pool of 4 blocks of 16. A ends with 48 prompt tokens in three full blocks and a fourth that is not full; then N
// takes one to four blocks.
TEST_CASE("evicted_tail_first: blocks of an ended sequence are evicted from its end, so its prefix stays longest") {
  struct Row {
    uint32_t n_taken, n_still_cached;
  };
  for (const Row& row : {Row{0, 48}, Row{1, 48}, Row{2, 32}, Row{3, 16}, Row{4, 0}}) {
    CAPTURE(row.n_taken);
    SchedBench bench(SchedBench::config(4));
    std::vector<TokenId> prompt(48);
    for (uint32_t i = 0; i < 48; ++i) prompt[i] = static_cast<TokenId>(i);
    Sequence& a = bench.add('A', prompt, 2);
    CHECK(bench.step() == "A48");
    CHECK(bench.step() == "A1");
    CHECK(bench.scheduler.n_running() == 0);
    CHECK(bench.free_list() == std::vector<uint32_t>{3, 2, 1, 0});
    if (row.n_taken > 0) {
      bench.add('N', 16 * row.n_taken - 1, 1);
      CHECK(bench.plan() == fmt::format("N{}", 16 * row.n_taken - 1));
    }
    prompt.push_back(7);  // so that the third block may be hit too
    CHECK(bench.scheduler.cached_tokens(prompt, a.domain) == row.n_still_cached);
  }
}

// A, B and C hold two full blocks each of a pool of 6. Each needs a third; the victim's two are enough for the others.
TEST_CASE("victim: the last of the running (fcfs), the worst by priority and then arrival (priority)") {
  struct Row {
    PolicyKind policy;
    std::array<int32_t, 3> priorities;
    std::string plan, queue;
  };
  for (const Row& row :
       {Row{PolicyKind::fcfs, {0, 0, 0}, "A1 B1", "C"}, Row{PolicyKind::fcfs, {9, 5, 0}, "A1 B1", "C"},
        Row{PolicyKind::fair, {9, 5, 0}, "A1 B1", "C"}, Row{PolicyKind::priority, {0, 0, 0}, "A1 B1", "C"},
        Row{PolicyKind::priority, {0, 7, 7}, "A1 B1", "C"}, Row{PolicyKind::priority, {0, 7, 3}, "A1 C1", "B"},
        Row{PolicyKind::priority, {5, 0, 0}, "B1 C1", "A"},  // itself
        Row{PolicyKind::priority, {5, 5, -1}, "A1 C1", "B"}}) {
    CAPTURE(static_cast<int>(row.policy));
    CAPTURE(row.priorities[0]);
    SchedBench bench(with(row.policy, 6, 4));
    Sequence* s[] = {&bench.add('A', 8), &bench.add('B', 8), &bench.add('C', 8)};
    CHECK(bench.step() == "A8 B8 C8");
    for (size_t i = 0; i < 3; ++i) s[i]->priority = row.priorities[i];
    CHECK(bench.plan() == row.plan);
    CHECK(bench.queue() == row.queue);
    CHECK(bench.scheduler.counters().n_preemptions == 1);
  }
}

// Four rows a step, two of one prompt at most. In the eighth step A has its last two rows in the plan when B needs a
// block and the pool of 8 blocks of 4 is empty (A 4, B 2, C 2).
TEST_CASE("victim: rows that the step already had for it are taken out and return to the budget") {
  struct Row {
    PolicyKind policy;
    std::string plan, queue;
  };
  for (const Row& row : {Row{PolicyKind::priority, "B1 C2", "A"},  // C had one row in the steps before
                         Row{PolicyKind::fcfs, "A2 B1", "C"}}) {
    CAPTURE(static_cast<int>(row.policy));
    Config config = with(row.policy, 8, 4);
    config.max_num_seqs = 3;
    config.max_num_batched_tokens = 4;
    config.long_prefill_token_threshold = 2;
    SchedBench bench(config);
    Sequence& a = bench.add('A', 16);
    bench.add('B', 3);
    bench.add('C', 8);
    CHECK(bench.step() == "A2 B2");
    for (int i = 2; i < 8; ++i) CHECK(bench.step() == "A2 B1 C1");
    a.priority = 1;
    CHECK(bench.scheduler.pool().n_free() == 0);
    CHECK(bench.plan() == row.plan);
    CHECK(bench.queue() == row.queue);
  }
}

}  // namespace
}  // namespace heddle::sched
