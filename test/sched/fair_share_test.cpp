// Properties of the fair policy's decisions over random states, and of what they add up to over long contention
// (fair_simulator.h).
#include "sched/fair_share.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fair_simulator.h"

namespace heddle::sched {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t operator()(uint32_t from, uint32_t to) { return std::uniform_int_distribution<uint32_t>(from, to)(engine_); }
  int64_t between(int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(engine_); }

 private:
  std::mt19937 engine_;
};

// Lines with and without work, and accounts such as rounds leave them.
struct State {
  explicit State(Random& random) {
    rules.quantum = random(1, 64);
    rules.step_rows = random(8, 512);
    rules.first_chunk = rules.step_rows - random(0, 7);
    rules.max_debt = random(100, 5000);
    const uint32_t n = random(1, 6);
    for (uint32_t i = 0; i < n; ++i) {
      LineState& line = lines.emplace_back();
      line.n_running = random(0, 1) * random(0, 5);
      line.n_missing = line.n_running == 0 ? 0 : random(0, 1) == 0 ? line.n_running : random(0, 900);
      line.n_ready = random(0, 1) * random(0, 5);
      line.head_cost = line.n_ready == 0 ? 0 : random(1, 700);
      fair::FairAccount& account = accounts.emplace_back();
      account.weight = random(1, 5);
      const int64_t most = line.n_ready > 0 ? rules.max_debt * account.weight : int64_t{line.n_missing};
      account.deficit = random(0, 4) == 0 ? 0 : random.between(-rules.max_debt * account.weight, most);
      if (line.n_running == 0 && line.n_ready > 0) account.claim = random(0, line.head_cost);
      account.planned = random(0, 1) * random(0, 200);
      account.last_admitted = random(0, 3);
      account.admitted = random(0, 5) == 0;
      account.settled = line.n_running > 0 && random(0, 2) > 0;
      account.turn = random.between(-5, 5);
      for (uint32_t r = 0; r < line.n_running; ++r) running.push_back({SeqId(running.size()), 0, 0, i});
    }
    for (size_t i = running.size(); i > 1; --i)
      std::swap(running[i - 1], running[random(0, static_cast<uint32_t>(i - 1))]);
  }
  bool starved(size_t i) const { return lines[i].n_running == 0 && lines[i].n_ready > 0; }
  bool due(size_t i) const { return fair::is_due(lines[i], accounts[i], rules); }
  double per_weight(size_t i) const { return static_cast<double>(accounts[i].deficit) / accounts[i].weight; }

  fair::FairRules rules;
  std::vector<LineState> lines;
  std::vector<fair::FairAccount> accounts;
  std::vector<policy::Candidate> running;
};

// Sequences of random lengths.
struct Sizes {
  uint32_t most_prompt, most_answer;
  uint32_t longest() const { return most_prompt + most_answer; }
  void add(FairSimulator& sim, uint32_t tenant, Random& random) const {
    const uint32_t prompt = random(1, most_prompt);
    sim.add(tenant, prompt, random(1, most_answer));
  }
};

template <class Check>
void for_random_states(Check check) {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 5000; ++round) {
    CAPTURE(round);
    State state(random);
    check(state);
  }
}

TEST_CASE(
    "a round: a claim never exceeds the head's cost, a deficit neither the bound nor, with nothing to start, the "
    "work") {
  for_random_states([](State& s) {
    for (int round = 0; round < 10; ++round) {
      fair::charge(s.accounts[0], 1000);
      fair::begin_round(s.lines, s.accounts, s.rules);
      for (size_t i = 0; i < s.lines.size(); ++i) {
        const fair::FairAccount& a = s.accounts[i];
        CHECK(a.claim <= (s.starved(i) ? int64_t{s.lines[i].head_cost} : 0));
        CHECK(a.deficit >= -s.rules.max_debt * a.weight);
        CHECK(a.deficit <= s.rules.max_debt * a.weight + (s.lines[i].n_ready > 0 ? 0 : int64_t{s.lines[i].n_missing}));
        if (s.lines[i].n_ready == 0) CHECK(a.deficit <= s.lines[i].n_missing);
        CHECK(a.planned == 0);
      }
    }
  });
}

TEST_CASE("a round owes what was planned: the deficits' sum grows by it, by less only if nobody can use it") {
  for_random_states([](State& s) {
    for (size_t i = 0; i < s.lines.size(); ++i) {
      s.accounts[i].deficit = std::clamp<int64_t>(s.accounts[i].deficit, -s.rules.max_debt * s.accounts[i].weight / 2,
                                                  s.rules.max_debt * s.accounts[i].weight / 2);
      // What a line is owed and cannot use any more goes to the others.
      if (s.lines[i].n_ready == 0 && i % 2 == 0) s.accounts[i].deficit = s.lines[i].n_missing + 40;
    }
    int64_t before = 0, planned = 0, after = 0, carry = 0, room = 0;
    const auto active = [&](size_t i) { return s.lines[i].n_running > 0 || s.lines[i].n_ready > 0; };
    for (size_t i = 0; i < s.lines.size(); ++i) before += s.accounts[i].deficit, planned += s.accounts[i].planned;
    fair::begin_round(s.lines, s.accounts, s.rules);
    for (size_t i = 0; i < s.lines.size(); ++i) {
      after += s.accounts[i].deficit;
      if (!active(i)) continue;
      carry += s.accounts[i].carry > 0;  // less than a row each
      room += s.lines[i].n_ready > 0 ? s.rules.max_debt * s.accounts[i].weight - s.accounts[i].deficit
                                     : s.lines[i].n_missing - s.accounts[i].deficit;
    }
    CHECK(after - before <= planned);
    if (room > carry) CHECK(after - before >= planned - carry);
  });
}

TEST_CASE("divisions lose no row: over many rounds each line is owed its share exactly") {
  const fair::FairRules rules{.quantum = 8, .max_debt = 1'000'000, .step_rows = 64, .first_chunk = 60};
  const std::vector<LineState> lines(3, {.n_running = 1, .n_missing = 1, .n_ready = 9, .head_cost = 10});
  std::vector<fair::FairAccount> accounts = {{.weight = 1}, {.weight = 3}, {.weight = 7}};
  for (int round = 0; round < 1100; ++round) {
    accounts[0].planned = 5;
    fair::begin_round(lines, accounts, rules);
  }
  CHECK(accounts[0].deficit == 500);
  CHECK(accounts[1].deficit == 1500);
  CHECK(accounts[2].deficit == 3500);
}

TEST_CASE("a starved line is due after exactly ceil(cost / (quantum * weight)) rounds if the others do no more rows") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 500; ++round) {
    fair::FairRules rules{.quantum = random(1, 40), .max_debt = 10'000, .step_rows = 1000, .first_chunk = 990};
    const uint32_t weight = random(1, 4), cost = random(1, 900);
    const std::vector<LineState> lines = {{.n_running = 8, .n_missing = 8, .n_ready = 500, .head_cost = 50},
                                          {.n_ready = 1, .head_cost = cost}};
    std::vector<fair::FairAccount> accounts = {{.weight = random(1, 4)}, {.weight = weight}};
    const int64_t quantum = rules.quantum * weight, n_rounds = (cost + quantum - 1) / quantum;
    for (int64_t i = 1; i <= n_rounds; ++i) {
      CHECK_FALSE(fair::is_due(lines[1], accounts[1], rules));
      fair::begin_round(lines, accounts, rules);
      fair::charge(accounts[0], random(0, static_cast<uint32_t>(rules.quantum)));
    }
    CHECK(fair::is_due(lines[1], accounts[1], rules));
    CHECK(accounts[1].claim == cost);
  }
}

TEST_CASE("a prompt of more rows than a step has is due so early that its steps of a quantum end in time") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 500; ++round) {
    fair::FairRules rules{
        .quantum = random(1, 40), .max_debt = 10'000, .step_rows = 100, .first_chunk = random(40, 100)};
    const int64_t cost = random(1, 2000);
    const LineState line{.n_ready = 1, .head_cost = static_cast<uint32_t>(cost)};
    fair::FairAccount account;
    int64_t n_rounds = 0;
    while (!fair::is_due(line, account, rules)) account.claim = std::min(rules.quantum * ++n_rounds, cost);
    const int64_t rest = std::max<int64_t>(cost - rules.first_chunk, 0);
    CHECK(n_rounds + (rest + rules.quantum - 1) / rules.quantum <= (cost + rules.quantum - 1) / rules.quantum);
  }
}

TEST_CASE("next: always somebody if anybody is ready; never one above its share while one waits that is not") {
  for_random_states([](State& s) {
    const std::optional<uint32_t> next = fair::next(s.lines, s.accounts, s.rules);
    bool any = false, starved_due = false, any_due = false;
    for (size_t i = 0; i < s.lines.size(); ++i) {
      any = any || s.lines[i].n_ready > 0;
      any_due = any_due || s.due(i);
      starved_due = starved_due || (s.due(i) && s.starved(i));
    }
    CHECK(next.has_value() == any);
    if (!next) return;
    CHECK(s.lines[*next].n_ready > 0);
    CHECK(s.due(*next) == any_due);
    if (any_due) CHECK(s.starved(*next) == starved_due);
    if (any_due) return;
    for (size_t i = 0; i < s.lines.size(); ++i) {
      if (s.lines[i].n_ready == 0) continue;
      CHECK(s.per_weight(i) <= s.per_weight(*next) + 1e-9);
      if (s.accounts[i].deficit >= 0) CHECK(s.accounts[*next].deficit >= 0);
    }
  });
}

TEST_CASE("a line that is due is not above its share, whatever it claims") {
  for_random_states([](State& s) {
    for (fair::FairAccount& account : s.accounts) account.claim = 0;
    for (int round = 0; round < 20; ++round) fair::begin_round(s.lines, s.accounts, s.rules);
    for (size_t i = 0; i < s.lines.size(); ++i)
      if (s.due(i)) CHECK(s.accounts[i].deficit >= 0);
  });
}

TEST_CASE("yielding: the newest of its line, never the claimant's, never one served less, never one just admitted") {
  int n_yields = 0;
  for_random_states([&n_yields](State& s) {
    for (uint32_t claimant = 0; claimant < s.lines.size(); ++claimant) {
      const std::optional<size_t> at = fair::yielding(s.lines, s.accounts, claimant, s.running);
      if (!at) continue;
      ++n_yields;
      const uint32_t line = s.running[*at].line;
      CHECK(line != claimant);
      for (size_t i = *at + 1; i < s.running.size(); ++i) CHECK(s.running[i].line != line);
      CHECK(s.per_weight(line) < s.per_weight(claimant));
      CHECK_FALSE(s.accounts[line].admitted);
      if (s.lines[line].n_running == 1) CHECK((s.accounts[line].settled && s.accounts[line].turn <= 0));
      // Between lines that run, the one that gives still has as many per weight as the one that gets.
      if (s.lines[claimant].n_running > 0)
        CHECK((s.lines[line].n_running - 1) * s.accounts[claimant].weight >=
              (s.lines[claimant].n_running + 1) * s.accounts[line].weight);
    }
  });
  CHECK(n_yields > 100);
}

TEST_CASE("victim: the newest of the line most above its share, the newest of all among equals") {
  for_random_states([](State& s) {
    if (s.running.empty()) return;
    const size_t at = fair::victim(s.accounts, s.running);
    for (size_t i = 0; i < s.running.size(); ++i) {
      CHECK(s.per_weight(s.running[i].line) >= s.per_weight(s.running[at].line) - 1e-9);
      if (i > at) CHECK(s.per_weight(s.running[i].line) > s.per_weight(s.running[at].line));
    }
  });
}

TEST_CASE("promises never exceed a step, and every line gets a row of any budget") {
  for_random_states([](State& s) {
    std::optional<uint32_t> claimant = fair::next(s.lines, s.accounts, s.rules);
    if (claimant && !s.due(*claimant)) claimant.reset();
    const int64_t promised = fair::promise(s.lines, s.accounts, s.rules, claimant);
    CHECK(promised <= s.rules.step_rows);
    if (claimant)
      CHECK(s.accounts[*claimant].promised >= std::min<int64_t>(s.lines[*claimant].head_cost, s.rules.first_chunk));
    int64_t sum = 0, budget = s.rules.step_rows;
    for (const fair::FairAccount& account : s.accounts) {
      sum += account.promised;
      CHECK(fair::rows_for(account, promised, budget) >= account.promised);
      for (const int64_t b : {int64_t{1}, int64_t{7}, budget}) {
        CHECK(fair::rows_for(account, promised, b) >= 1);
        CHECK(fair::rows_for(account, promised, b) <= b);
      }
      CHECK(fair::rows_for(account, promised, 0) == 0);
    }
    CHECK(sum == promised);
  });
}

// ---- what it adds up to

fair::FairRules rules_for(uint32_t quantum, uint32_t longest, uint32_t step_rows, uint32_t n_slots) {
  return {.quantum = quantum,
          .max_debt = int64_t{longest} + 4 * int64_t{step_rows},
          .step_rows = step_rows,
          .first_chunk = step_rows - (n_slots - 1)};
}

// Bound: one sequence more than a tenant's due on either side, and what the others that run when a line falls behind
// may still take, of random lengths.
TEST_CASE(
    "long contention: rows per weight of tenants that always wait differ by 2 + n_slots / 3 longest sequences at "
    "most") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 10; ++round) {
    const uint32_t n_slots = random(2, 16), step_rows = n_slots + random(16, 512), n = random(2, 3);
    const Sizes sizes{random(8, 400), random(1, 200)};
    FairSimulator sim(n_slots, step_rows, rules_for(random(8, 64), sizes.longest(), step_rows, n_slots));
    std::vector<uint32_t> weights(n);
    for (uint32_t& weight : weights) sim.add_tenant(weight = random(1, 4));
    for (int i = 0; i < 500; ++i) sizes.add(sim, 0, random);
    double gap = 0;
    uint64_t n_exchanges = 0;
    for (int step = 0; step < 10'000; ++step) {
      for (uint32_t i = 0; i < n; ++i)
        while (sim.tenants[i].queue.size() < size_t{2} * n_slots) sizes.add(sim, i, random);
      sim.step();
      CHECK(sim.contended);
      CHECK(sim.n_planned > 0);
      n_exchanges += sim.n_exchanges;
      for (uint32_t i = 0; i < n; ++i)
        for (uint32_t j = 0; j < n; ++j)
          gap = std::max(gap, static_cast<double>(sim.tenants[i].n_rows) / weights[i] -
                                  static_cast<double>(sim.tenants[j].n_rows) / weights[j]);
    }
    CHECK(gap <= (2 + n_slots / 3.0) * sizes.longest());
    CHECK(n_exchanges <= 10'000 / 8);
  }
}

TEST_CASE("a starved tenant has its first token within ceil(cost / (quantum * weight)) + 1 plans beside 500 others") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const uint32_t n_slots = random(2, 16), quantum = random(1, 48), own = random(1, 3), other = random(1, 3);
    const uint32_t step_rows = n_slots + quantum * (own + other) + random(0, 256);
    const Sizes sizes{random(1, 2000), random(1, 200)};
    FairSimulator sim(n_slots, step_rows, rules_for(quantum, sizes.longest(), step_rows, n_slots));
    sim.add_tenant(other);
    sim.add_tenant(own);
    for (int i = 0; i < 500; ++i) sizes.add(sim, 0, random);
    for (uint32_t i = random(0, 100); i > 0; --i) sim.step();
    const uint32_t cost = random(1, 1000), bound = (cost + quantum * own - 1) / (quantum * own) + 1;
    sim.add(1, cost, random(1, 50));
    // A prompt of more than a step's rows waits for the other tenant's head if that has come to be due meanwhile.
    const uint32_t latest = bound + (cost > step_rows - (n_slots - 1) ? 1 : 0);
    for (uint32_t i = 0; i < latest; ++i) sim.step();
    CHECK(sim.tenants[1].worst_first_token > 0);
  }
}

// Places for all: the share of each is one place at least.
TEST_CASE("while demand is the same, exchanges between tenants that run come to an end, in balance") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 50; ++round) {
    const uint32_t n = random(2, 4), n_slots = random(3 * n, 16), step_rows = n_slots + random(100, 300);
    FairSimulator sim(n_slots, step_rows, rules_for(random(4, 64), 100'000, step_rows, n_slots));
    for (uint32_t i = 0; i < n; ++i) sim.add_tenant(random(1, 3));
    for (int i = 0; i < 500; ++i) sim.add(0, random(1, 50), 1'000'000);
    for (uint32_t i = random(1, 100); i > 0; --i) sim.step();
    for (uint32_t t = 1; t < n; ++t)
      for (int i = 0; i < 20; ++i) sim.add(t, random(1, 50), 1'000'000);
    uint32_t n_exchanges = 0, n_late = 0;
    for (int step = 0; step < 4000; ++step) {
      sim.step();
      n_exchanges += sim.n_exchanges;
      if (step >= 2000) n_late += sim.n_exchanges;
    }
    CHECK(n_exchanges <= 2 * n_slots);
    CHECK(n_late == 0);
    for (uint32_t i = 0; i < n; ++i) CHECK(sim.n_running(i) > 0);
    for (uint32_t i = 1; i < n; ++i)  // no place could go from the first one to another and leave it with as many
      CHECK((sim.n_running(0) - 1) * sim.account(i).weight < (sim.n_running(i) + 1) * sim.account(0).weight);
  }
}

TEST_CASE("tenants that outnumber the places take turns: all get on, and no turn is shorter than a quantum") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const uint32_t n_slots = random(1, 2), n = random(n_slots + 1, 5), step_rows = n_slots + random(1, 100);
    const uint32_t quantum = random(1, 128);
    FairSimulator sim(n_slots, step_rows, rules_for(quantum, 5000, step_rows, n_slots));
    for (uint32_t i = 0; i < n; ++i) {
      sim.add_tenant(random(1, 2));
      sim.add(i, random(8, 300), 1'000'000);
    }
    uint64_t n_tokens = 0, n_exchanges = 0;
    for (uint32_t step = 0; step < 30'000; ++step) {
      sim.step();
      CHECK(sim.n_planned > 0);
      n_exchanges += sim.n_exchanges;
    }
    for (const FairSimulator::Tenant& tenant : sim.tenants) {
      CHECK(tenant.n_tokens >= quantum);
      n_tokens += tenant.n_tokens;
    }
    CHECK(n_exchanges >= n - n_slots);
    CHECK(n_tokens + quantum * n_slots >= n_exchanges * quantum);
  }
}

}  // namespace
}  // namespace heddle::sched
