// The fair policy in the scheduler: plans and commits with several steps in flight, slots and blocks scarce.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "sched/admission.h"
#include "sched/scheduler.h"

namespace heddle::sched {
namespace {

class Bench {
 public:
  explicit Bench(const Config& config, size_t depth) : scheduler(config), depth_(depth) {}

  struct Entry {
    Sequence sequence;
    device::SlotSampling sampling;
    uint64_t first_token_plan = 0;  // number of the plan that has its first sampled row; 0: none yet
  };

  Entry& add(const std::string& tenant, uint32_t n_prompt, uint32_t max_tokens) {
    Entry& entry = *entries_.emplace_back(std::make_unique<Entry>());
    Sequence& s = entry.sequence;
    s.id = SeqId(entries_.size());
    s.n_prompt = n_prompt;
    s.n_limit = limit_of(n_prompt, max_tokens, scheduler.config());
    s.tokens.assign(n_prompt, static_cast<TokenId>(entries_.size()));  // shares no block with another
    s.domain = domain_;
    s.sampling = &entry.sampling;
    s.owner = &entry;
    scheduler.add(s, tenant);
    return entry;
  }

  // One plan; the oldest is committed once `depth` are in flight, or if there is nothing to plan.
  void turn() {
    auto plan = std::make_unique<StepPlan>();
    ++n_plans;
    const bool planned = scheduler.plan(*plan, MonotonicTime{} + std::chrono::seconds(n_plans));
    if (planned) {
      for (const SeqStep& step : plan->seqs) {
        Entry& entry = *static_cast<Entry*>(step.sequence->owner);
        if (step.outputs == Outputs::sample && entry.first_token_plan == 0) entry.first_token_plan = n_plans;
      }
      flight_.push_back(std::move(plan));
    } else {
      ++n_empty;
      CHECK(scheduler.stuck_head() == nullptr);
    }
    if (flight_.size() >= depth_ || (!planned && !flight_.empty())) commit();
    const auto lines = violations(scheduler.view());
    CHECK(lines == std::vector<std::string>{});
  }
  void commit() {
    const StepPlan& plan = *flight_.front();
    std::vector<SeqResult> results(plan.seqs.size());
    for (size_t i = 0; i < results.size(); ++i)
      if (plan.seqs[i].outputs == Outputs::sample) results[i].token = 1;
    std::vector<Delivered> delivered;
    scheduler.commit(plan, results, delivered);
    for (const Delivered& d : delivered)
      if (d.sequence->n_known() >= d.sequence->n_limit) scheduler.finish(*d.sequence);
    flight_.pop_front();
  }

  Scheduler scheduler;
  int64_t n_plans = 0;
  uint64_t n_empty = 0;

 private:
  size_t depth_;
  std::deque<std::unique_ptr<StepPlan>> flight_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::shared_ptr<const PrefixDomain> domain_ = std::make_shared<const PrefixDomain>(PrefixDomain{"model", ""});
};

Config fair(uint32_t n_slots, uint32_t n_rows, uint32_t quantum, uint32_t n_blocks) {
  Config config;
  config.policy = PolicyKind::fair;
  config.max_num_seqs = n_slots;
  config.max_num_batched_tokens = n_rows;
  config.fair_quantum = quantum;
  config.n_blocks = n_blocks;
  config.max_model_len = 4096;
  return config;
}

TEST_CASE(
    "fair: beside 500 queued requests a tenant's first token is planned within ceil(cost / quantum) + depth steps") {
  struct Row {
    uint32_t n_slots, n_rows, quantum, cost, weight, prompt;  // the last: of the other tenant's requests
  };
  for (size_t depth = 1; depth <= 4; ++depth)
    for (const Row& row : {Row{8, 256, 32, 100, 1, 20}, Row{8, 256, 32, 32, 1, 20}, Row{8, 256, 32, 33, 1, 20},
                           Row{4, 256, 16, 200, 1, 20}, Row{2, 64, 8, 50, 1, 20}, Row{8, 256, 32, 100, 3, 20},
                           Row{8, 128, 32, 300, 1, 20},    // more rows than a step has
                           Row{8, 128, 32, 100, 1, 3000},  // prompts under way could take every row of a step
                           Row{8, 64, 16, 500, 1, 3000}}) {
      const uint64_t bound = (row.cost + row.quantum * row.weight - 1) / (row.quantum * row.weight) + depth;
      CAPTURE(depth);
      CAPTURE(row.cost);
      CAPTURE(row.prompt);
      Config config = fair(row.n_slots, row.n_rows, row.quantum, 4000);
      config.tenant_weights["late"] = row.weight;
      Bench bench(config, depth);
      for (int i = 0; i < 500; ++i) bench.add("early", row.prompt, 1000);
      for (int i = 0; i < 20; ++i) bench.turn();
      const uint64_t before = static_cast<uint64_t>(bench.n_plans);
      const Bench::Entry& late = bench.add("late", row.cost, 10);
      for (uint64_t i = 0; i < bound; ++i) bench.turn();
      CHECK(late.first_token_plan > before);
      CHECK(late.first_token_plan - before <= bound);
      CHECK(bench.scheduler.counters().n_preemptions <= 1);
    }
}

TEST_CASE("fair: if blocks are scarce and not slots, sequences above the share give way all the same") {
  for (size_t depth = 1; depth <= 3; ++depth) {
    CAPTURE(depth);
    // 64 blocks of 16: four of 240 tokens and their answers fill them.
    Bench bench(fair(16, 512, 32, 64), depth);
    for (int i = 0; i < 50; ++i) bench.add("early", 250, 500);
    for (int i = 0; i < 10; ++i) bench.turn();
    const uint64_t before = static_cast<uint64_t>(bench.n_plans);
    const Bench::Entry& late = bench.add("late", 400, 10);
    const uint64_t bound = (400 + 31) / 32 + depth;
    for (uint64_t i = 0; i < bound; ++i) bench.turn();
    CHECK(late.first_token_plan > before);
    CHECK(late.first_token_plan - before <= bound);
  }
}

TEST_CASE("fair: one slot is shared in turns, and no plan is empty while somebody waits") {
  for (size_t depth = 1; depth <= 2; ++depth) {
    CAPTURE(depth);
    Bench bench(fair(1, 64, 8, 400), depth);
    const Bench::Entry& a = bench.add("a", 40, 2000);
    for (int i = 0; i < 10; ++i) bench.turn();
    const Bench::Entry& b = bench.add("b", 30, 2000);
    const Bench::Entry& c = bench.add("c", 90, 2000);
    for (int i = 0; i < 1000; ++i) bench.turn();
    for (const Bench::Entry* entry : {&a, &b, &c}) CHECK(entry->sequence.n_generated() > 100);
    if (depth == 1) CHECK(bench.n_empty == 0);
  }
}

TEST_CASE("fair: weights hold over a long time, and every request ends") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](uint32_t from, uint32_t to) {
    return std::uniform_int_distribution<uint32_t>(from, to)(random);
  };
  Config config = fair(8, 256, 16, 300);
  config.tenant_weights["two"] = 2;
  Bench bench(config, 2);
  const std::string names[] = {"one", "two"};
  std::vector<std::pair<Bench::Entry*, size_t>> all;
  uint64_t generated[2] = {}, prompt[2] = {};
  for (int i = 0; i < 1000; ++i)
    for (size_t t = 0; t < 2; ++t) all.emplace_back(&bench.add(names[t], pick(1, 200), pick(1, 60)), t);
  for (int i = 0; i < 4000; ++i) bench.turn();
  for (const auto& [entry, t] : all) {
    generated[t] += entry->sequence.n_generated();
    if (entry->first_token_plan > 0) prompt[t] += entry->sequence.n_prompt;
  }
  const double one = static_cast<double>(generated[0] + prompt[0]), two = static_cast<double>(generated[1] + prompt[1]);
  CAPTURE(one);
  CAPTURE(two);
  CHECK(two / one > 1.8);
  CHECK(two / one < 2.2);
  while (bench.scheduler.n_running() + bench.scheduler.n_waiting() > 0 && bench.n_plans < 100'000) bench.turn();
  for (const auto& [entry, t] : all) CHECK(entry->sequence.n_known() == entry->sequence.n_limit);
}

}  // namespace
}  // namespace heddle::sched
