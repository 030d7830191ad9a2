#include "sched/policy.h"

#include <doctest/doctest.h>

#include "sched/admission.h"
#include "sched/waiting_queue.h"

namespace heddle::sched {
namespace {

TEST_CASE("rows: as many as are missing, within budget and, in company, within the long-prefill limit") {
  struct Row {
    policy::RowDemand demand;
    uint32_t rows;
  };
  for (const Row& row :
       {Row{{1, 32, 0, false, true}, 1}, Row{{50, 31, 0, false, true}, 31}, Row{{50, 0, 0, false, true}, 0},
        Row{{50, 31, 16, false, true}, 16}, Row{{50, 31, 16, true, true}, 31}, Row{{10, 31, 16, false, true}, 10},
        Row{{0, 31, 16, false, true}, 0}, Row{{50, 31, 0, false, false}, 0}, Row{{31, 31, 16, false, false}, 31}})
    CHECK(policy::rows(row.demand) == row.rows);
}

TEST_CASE("rows never exceed what is missing, nor the budget") {
  for (uint32_t missing = 0; missing < 40; missing += 3)
    for (uint32_t budget = 0; budget < 40; budget += 7)
      for (uint32_t limit = 0; limit < 20; limit += 5)
        for (const bool alone : {false, true})
          for (const bool split : {false, true}) {
            const uint32_t n = policy::rows({missing, budget, limit, alone, split});
            CHECK(n <= missing);
            CHECK(n <= budget);
            if (missing > 0 && budget > 0 && split) CHECK(n > 0);  // somebody always gets on
          }
}

TEST_CASE("fcfs: the victim is the one admitted last") {
  const std::vector<policy::Candidate> running = {{SeqId(9)}, {SeqId(2)}, {SeqId(5)}};
  CHECK(policy::fcfs_victim(running) == 2);
  CHECK(policy::fcfs_victim(std::span(running).first(1)) == 0);
}

TEST_CASE("room: blocks promised to prompts under way are not given twice") {
  CHECK(policy::fits({4, 9, 5}));
  CHECK_FALSE(policy::fits({4, 9, 6}));
}

TEST_CASE("a prompt fits if its blocks exist, and ends at what was asked, the model's length or the pool") {
  Config config;
  config.n_blocks = 3;
  config.block_size = 4;
  config.max_model_len = 100;
  CHECK_FALSE(demand_of(12, config).never_fits());
  CHECK(demand_of(13, config).never_fits());
  CHECK(demand_of(13, config).needed == 4);
  CHECK(demand_of(13, config).available == 3);
  CHECK(limit_of(8, 3, config) == 11);
  CHECK(limit_of(8, 50, config) == 13);
  CHECK(limit_of(12, 50, config) == 13);
  config.n_blocks = 50;
  CHECK(limit_of(12, 500, config) == 100);
}

TEST_CASE("lookahead: blocks for drafts count in the demand, but none past the model's length") {
  Config config;
  config.n_blocks = 3;
  config.block_size = 4;
  config.max_model_len = 100;
  config.n_lookahead = 4;
  CHECK_FALSE(demand_of(8, config).never_fits());
  CHECK(demand_of(9, config).never_fits());
  CHECK(limit_of(4, 50, config) == 9);
  config.max_model_len = 12;
  CHECK_FALSE(demand_of(11, config).never_fits());
  CHECK(limit_of(4, 50, config) == 12);
}

TEST_CASE("a configuration that cannot work is refused by the name of its flag") {
  Config good;
  good.n_blocks = 4;
  CHECK(validate(good).has_value());
  const auto refused = [&](auto change, const std::string& flag) {
    Config config = good;
    change(config);
    const Result<void> result = validate(config);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().message.find(flag) != std::string::npos);
  };
  refused([](Config& c) { c.max_num_seqs = 0; }, "--max-num-seqs");
  refused([](Config& c) { c.block_size = 0; }, "--block-size");
  refused([](Config& c) { c.max_model_len = 1; }, "--max-model-len");
  refused([](Config& c) { c.n_blocks = 0; }, "--num-gpu-blocks-override");
  refused([](Config& c) { c.max_num_batched_tokens = 100; }, "--max-num-batched-tokens");
  refused([](Config& c) { c.enable_chunked_prefill = false, c.max_model_len = 4096; }, "--max-model-len");
}

TEST_CASE("the waiting queue keeps its order through removals anywhere") {
  std::vector<Sequence> s(5);
  WaitingQueue queue;
  for (int i : {1, 2, 3}) queue.push_back(s[static_cast<size_t>(i)]);
  queue.push_front(s[0]);
  queue.push_back(s[4]);
  queue.remove(s[2]);
  queue.remove(s[0]);
  queue.remove(s[4]);
  CHECK(queue.size() == 2);
  CHECK(queue.head() == &s[1]);
  CHECK(queue.head()->next == &s[3]);
  CHECK(s[3].next == nullptr);
  queue.remove(s[1]);
  queue.remove(s[3]);
  CHECK(queue.empty());
  queue.push_front(s[2]);
  CHECK(queue.head() == &s[2]);
}

}  // namespace
}  // namespace heddle::sched
