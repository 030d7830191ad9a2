#include "sched/policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "sched/admission.h"

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

// Random sequences with few priorities, so that many are equal; orders of arrival are all different.
std::vector<policy::Candidate> random_candidates(std::mt19937& random) {
  std::vector<policy::Candidate> all(std::uniform_int_distribution<size_t>(1, 12)(random));
  for (uint64_t i = 0; i < all.size(); ++i)
    all[i] = {SeqId(i), std::uniform_int_distribution<int32_t>(-2, 2)(random), i, 0};
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

TEST_CASE("priority: the victim is the maximum of (priority, arrival), wherever it stands") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<policy::Candidate> running = random_candidates(random);
    const policy::Candidate& victim = running[policy::priority_victim(running)];
    for (const policy::Candidate& c : running)
      CHECK(std::tie(c.priority, c.order) <= std::tie(victim.priority, victim.order));
  }
}

TEST_CASE("priority: places are a strict total order, by priority and then arrival") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::vector<policy::Candidate> all = random_candidates(random);
    const auto key = [](const policy::Candidate& c) { return policy::priority_key(c.priority, c.order); };
    for (const policy::Candidate& a : all)
      for (const policy::Candidate& b : all) {
        CHECK((key(a) < key(b)) == (std::tie(a.priority, a.order) < std::tie(b.priority, b.order)));
        CHECK((key(a) < key(b)) + (key(b) < key(a)) + (a.order == b.order) == 1);
        for (const policy::Candidate& c : all)
          if (key(a) < key(b) && key(b) < key(c)) CHECK(key(a) < key(c));
      }
  }
}

TEST_CASE("fcfs: victims taken from the back return in the order of their admission, before every new sequence") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<policy::Candidate> running = random_candidates(random);  // admitted in any order of arrival
    const std::vector<policy::Candidate> admitted = running;
    std::vector<std::pair<QueueKey, uint64_t>> queue;
    for (uint64_t order = 100; order < 105; ++order) queue.push_back({policy::fcfs_key(order), order});
    uint64_t n_preemptions = std::uniform_int_distribution<uint64_t>(0, 50)(random);
    const size_t n_victims = std::uniform_int_distribution<size_t>(1, running.size())(random);
    for (size_t i = 0; i < n_victims; ++i) {
      const size_t victim = policy::fcfs_victim(running);
      queue.push_back({policy::returning_key(++n_preemptions), running[victim].order});
      running.erase(running.begin() + static_cast<ptrdiff_t>(victim));
    }
    std::sort(queue.begin(), queue.end());
    for (size_t i = 0; i < n_victims; ++i) CHECK(queue[i].second == admitted[admitted.size() - n_victims + i].order);
    for (size_t i = 0; i < 5; ++i) CHECK(queue[n_victims + i].second == 100 + i);
  }
}

TEST_CASE("room: blocks promised to prompts under way are not given twice") {
  CHECK(policy::fits({4, 9, 5}));
  CHECK_FALSE(policy::fits({4, 9, 6}));
  CHECK_FALSE(policy::fits({UINT32_MAX, UINT32_MAX, 1}));  // no wrap-around
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

}  // namespace
}  // namespace heddle::sched
