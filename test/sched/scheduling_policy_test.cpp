// The policies as objects, asked as a scheduler asks them.
#include "sched/scheduling_policy.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "sched/fair_policy.h"
#include "sched/sequence.h"

namespace heddle::sched {
namespace {

std::unique_ptr<SchedulingPolicy> make(PolicyKind kind) {
  Config config;
  config.policy = kind;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.fair_quantum = 10;
  std::unique_ptr<SchedulingPolicy> policy = make_policy(config);
  policy->add_line(0, 1);
  return policy;
}

Sequence arrived(uint64_t order, int32_t priority = 0, uint32_t tenant = 0) {
  Sequence s;
  s.order = order;
  s.priority = priority;
  s.tenant = tenant;
  return s;
}

constexpr PolicyKind kAll[] = {PolicyKind::fcfs, PolicyKind::priority, PolicyKind::fair};

TEST_CASE("each policy: nobody is next while nobody is ready, and no decoding row is ever held back") {
  for (const PolicyKind kind : kAll) {
    CAPTURE(static_cast<int>(kind));
    const auto policy = make(kind);
    const std::vector<LineState> idle = {{.n_running = 2, .n_missing = 2}};
    policy->begin_plan(idle);
    CHECK_FALSE(policy->next_line(idle).has_value());
    CHECK_FALSE(policy->next_line({}).has_value());
    for (const uint32_t budget : {1u, 5u, 64u}) CHECK(policy->rows_for(0, budget, idle) == budget);
    const std::vector<LineState> waiting = {{.n_running = 2, .n_missing = 2, .n_ready = 3, .head_cost = 40}};
    policy->begin_plan(waiting);
    CHECK(policy->next_line(waiting) == 0);
  }
}

TEST_CASE("fcfs and priority know one line, and nobody yields because somebody waits, however good he is") {
  for (const PolicyKind kind : {PolicyKind::fcfs, PolicyKind::priority}) {
    const auto policy = make(kind);
    CHECK(policy->line(arrived(1, 0, 5)) == 0);
    const std::vector<LineState> lines = {{.n_running = 2, .n_missing = 2, .n_ready = 1, .head_cost = 1}};
    const std::vector<policy::Candidate> running = {{SeqId(1), 9, 1, 0}, {SeqId(2), 9, 2, 0}};
    for (int i = 0; i < 100; ++i) {
      policy->begin_plan(lines);
      CHECK_FALSE(policy->yields_to(0, lines, running).has_value());
      policy->charge(0, 2);
    }
  }
}

TEST_CASE("fcfs: a preempted sequence goes before every new one, the last preempted first") {
  const auto policy = make(PolicyKind::fcfs);
  const Sequence a = arrived(1), b = arrived(2, -5);
  CHECK(policy->key(a, 0) < policy->key(b, 0));  // a priority means nothing here
  CHECK(policy->key(b, 1) < policy->key(a, 0));
  CHECK(policy->key(a, 2) < policy->key(b, 1));
}

TEST_CASE("priority: a preempted sequence goes back to its place") {
  const auto policy = make(PolicyKind::priority);
  const Sequence a = arrived(1), b = arrived(2, -5), c = arrived(3);
  CHECK(policy->key(b, 0) < policy->key(a, 0));
  CHECK(policy->key(a, 0) < policy->key(c, 0));
  for (const uint64_t n : {1u, 7u}) CHECK(policy->key(c, n) == policy->key(c, 0));
}

TEST_CASE("fair: a line is a tenant, first come, first served inside") {
  const auto policy = make(PolicyKind::fair);
  const Sequence a = arrived(1, 0, 3), b = arrived(2, -5, 3);
  CHECK(policy->line(a) == 3);
  CHECK(policy->key(a, 0) < policy->key(b, 0));
  CHECK(policy->key(b, 1) < policy->key(a, 0));
}

// Four slots, all tenant 0's; tenant 1 comes with a prompt of 35 at a quantum of 10.
TEST_CASE("fair: the newest sequence of a tenant above its share yields in the plan in which the other is due") {
  const auto policy = make(PolicyKind::fair);
  policy->add_line(1, 1);
  std::vector<LineState> lines = {{.n_running = 4, .n_missing = 4, .n_ready = 500, .head_cost = 20},
                                  {.n_ready = 1, .head_cost = 35}};
  const std::vector<policy::Candidate> running = {{SeqId(1)}, {SeqId(2)}, {SeqId(3)}, {SeqId(4)}};
  for (int plan = 1; plan <= 4; ++plan) {
    policy->begin_plan(lines);
    for (size_t i = 0; i < running.size(); ++i) policy->charge(0, 1);
    CHECK(policy->next_line(lines) == 1);
    const std::optional<size_t> yields = policy->yields_to(1, lines, running);
    CHECK(yields.has_value() == (plan == 4));
    if (yields) CHECK(*yields == 3);
  }
  // The next plan: the place is free, and the tenant that lost it does not get it back.
  policy->charge(0, -1);
  lines[0] = {.n_running = 3, .n_missing = 3, .n_ready = 501, .head_cost = 60};
  policy->begin_plan(lines);
  CHECK(policy->next_line(lines) == 1);
  CHECK(policy->rows_for(0, 64, lines) == 64 - 35);  // which keeps rows for the prompt that comes
  policy->admitted(1);
  policy->charge(1, 35);
  lines[1] = {.n_running = 1, .n_missing = 0};
  CHECK(policy->next_line(lines) == 0);
  const std::vector<policy::Candidate> then = {{SeqId(1)}, {SeqId(2)}, {SeqId(3)}, {SeqId(5), 0, 5, 1}};
  CHECK_FALSE(policy->yields_to(0, lines, then).has_value());
}

TEST_CASE("fair: rows that a due head could not use, for want of a place, are kept in every other plan only") {
  const auto policy = make(PolicyKind::fair);
  policy->add_line(1, 1);
  // The only place belongs to a prompt that has not had its first token: it is not exchanged.
  const std::vector<LineState> lines = {{.n_running = 1, .n_missing = 500, .n_ready = 5, .head_cost = 20},
                                        {.n_ready = 1, .head_cost = 10}};
  const std::vector<policy::Candidate> running = {{SeqId(1)}};
  for (int plan = 1; plan <= 8; ++plan) {
    CAPTURE(plan);
    policy->begin_plan(lines);
    const bool kept = plan % 2 == 1;
    CHECK(policy->rows_for(0, 64, lines) == (kept ? 54 : 64));
    policy->charge(0, kept ? 54 : 64);
    if (!kept) continue;  // no row is left to admit anybody with
    CHECK(policy->next_line(lines) == 1);
    CHECK_FALSE(policy->yields_to(1, lines, running).has_value());
  }
}

TEST_CASE("fair: once nobody else is there, all accounts are forgotten") {
  Config config;
  config.policy = PolicyKind::fair;
  FairPolicy policy({.quantum = 10, .max_debt = 1000, .step_rows = 64, .first_chunk = 61});
  policy.add_line(0, 1);
  policy.add_line(1, 2);
  const std::vector<LineState> both = {{.n_running = 4, .n_missing = 4, .n_ready = 5, .head_cost = 20},
                                       {.n_ready = 1, .head_cost = 35}};
  const std::vector<LineState> one = {{.n_running = 4, .n_missing = 4, .n_ready = 5, .head_cost = 20}, {}};
  for (int i = 0; i < 5; ++i) {
    policy.begin_plan(both);
    policy.charge(0, 4);
  }
  CHECK(policy.accounts()[0].deficit < 0);
  CHECK(policy.accounts()[1].claim == 35);
  policy.begin_plan(one);
  policy.charge(0, 4);  // alone: nothing is charged
  policy.begin_plan(both);
  CHECK(policy.accounts()[0].deficit == 0);
  CHECK(policy.accounts()[1].deficit == 0);
  CHECK(policy.accounts()[1].claim == 20);  // one round
  CHECK(policy.accounts()[1].weight == 2);
}

TEST_CASE("fair: a line that is given to a new tenant starts anew") {
  FairPolicy policy({.quantum = 10, .max_debt = 1000, .step_rows = 64, .first_chunk = 61});
  policy.add_line(0, 1);
  policy.add_line(1, 2);
  const std::vector<LineState> both = {{.n_running = 4, .n_missing = 4}, {.n_ready = 1, .head_cost = 35}};
  for (int i = 0; i < 5; ++i) {
    policy.begin_plan(both);
    policy.charge(0, 4);
  }
  policy.add_line(0, 7);
  CHECK(policy.accounts().size() == 2);
  CHECK(policy.accounts()[0].weight == 7);
  CHECK(policy.accounts()[0].deficit == 0);
  CHECK(policy.accounts()[0].last_admitted == 0);
}

}  // namespace
}  // namespace heddle::sched
