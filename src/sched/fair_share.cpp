#include "sched/fair_share.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::sched::fair {

namespace {

bool is_active(const LineState& line) { return line.n_running > 0 || line.n_ready > 0; }
bool is_starved(const LineState& line) { return line.n_running == 0 && line.n_ready > 0; }
int64_t head_cost(const LineState& line) { return line.n_ready > 0 ? int64_t{line.head_cost} : 0; }
// A line that has nothing more to start is owed no more than the rows that it could use.
int64_t cap(const LineState& line, const FairAccount& account, const FairRules& rules) {
  return line.n_ready > 0 ? rules.max_debt * account.weight : int64_t{line.n_missing};
}

// a.deficit / a.weight < b.deficit / b.weight
bool owed_less(const FairAccount& a, const FairAccount& b) {
  return a.deficit * int64_t{b.weight} < b.deficit * int64_t{a.weight};
}

// Shares `pool` rows out by weight among the active lines that are owed less than they have work for.
void share_out(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, int64_t pool) {
  const auto room_of = [&](size_t i) { return cap(lines[i], accounts[i], rules) - accounts[i].deficit; };
  const auto open = [&](size_t i) { return is_active(lines[i]) && room_of(i) > 0; };
  int64_t weights = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    if (open(i)) weights += accounts[i].weight;
  // Lines that have enough leave the rest to the others: each pass closes one at least, or is the last.
  for (bool again = true; again && weights > 0 && pool > 0;) {
    again = false;
    const int64_t pool_of_pass = pool, weights_of_pass = weights;
    for (size_t i = 0; i < lines.size(); ++i) {
      FairAccount& account = accounts[i];
      const int64_t room = room_of(i);
      if (!open(i) || pool_of_pass * account.weight / weights_of_pass < room) continue;
      account.deficit += room;
      account.carry = 0;
      pool -= room;
      weights -= account.weight;
      again = true;
    }
  }
  if (weights == 0 || pool <= 0) return;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!open(i)) continue;
    FairAccount& account = accounts[i];
    const int64_t owed = pool * account.weight + std::min(account.carry, weights - 1);
    account.deficit += std::min(owed / weights, room_of(i));
    account.carry = owed % weights;
  }
}

}  // namespace

bool contended(Lines lines) {
  size_t n_active = 0, n_waiting = 0;
  for (const LineState& line : lines) {
    n_active += is_active(line);
    n_waiting += line.n_ready > 0;
  }
  return n_waiting > 0 && n_active > 1;
}

void begin_round(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, bool first) {
  HEDDLE_CHECK_OP(lines.size(), <=, accounts.size());
  int64_t pool = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    FairAccount& account = accounts[i];
    const int64_t unused = std::max(account.deficit - cap(lines[i], account, rules), int64_t{0});
    account.deficit -= unused;
    pool += account.planned + unused;
    const bool caught_up = lines[i].n_running > 0 && lines[i].n_missing <= lines[i].n_running;
    // The last row of a prompt and that of a token look alike: only the next one is surely a token's.
    account.settled = caught_up && (first || account.settled || (account.caught_up && account.planned > 0));
    account.caught_up = caught_up;
    account.planned = 0;
    account.admitted = false;
  }
  share_out(lines, accounts, rules, pool);
  for (size_t i = 0; i < lines.size(); ++i) {
    FairAccount& account = accounts[i];
    account.deficit = std::max(account.deficit, -rules.max_debt * account.weight);
    if (!is_starved(lines[i]))
      account.claim = 0;
    else if (account.deficit >= 0)
      account.claim = std::min(account.claim + rules.quantum * account.weight, head_cost(lines[i]));
  }
}

void charge(FairAccount& account, int64_t rows) {
  account.deficit -= rows;
  account.planned += rows;
  if (account.settled) account.turn -= rows;
}

void admitted(FairAccount& account, const FairRules& rules, uint64_t number) {
  account.last_admitted = number;
  account.admitted = true;
  account.claim = 0;
  account.turn = rules.quantum * account.weight;
}

bool is_due(const LineState& line, const FairAccount& account, const FairRules& rules) {
  if (line.n_ready == 0) return false;
  const int64_t cost = line.head_cost;
  if (account.deficit >= cost) return true;
  if (line.n_running > 0) return false;
  const int64_t quantum = rules.quantum * account.weight;
  const int64_t rest = std::max(cost - rules.first_chunk, int64_t{0});
  return account.claim >= std::max(cost - (rest + quantum - 1) / quantum * quantum, int64_t{1});
}

std::optional<uint32_t> next(Lines lines, Accounts accounts, const FairRules& rules) {
  enum Rank { waits, due, starved };
  std::optional<uint32_t> best;
  Rank best_rank = waits;
  for (uint32_t i = 0; i < lines.size(); ++i) {
    if (lines[i].n_ready == 0) continue;
    const FairAccount& a = accounts[i];
    const Rank rank = !is_due(lines[i], a, rules) ? waits : is_starved(lines[i]) ? starved : due;
    const auto better = [&] {
      if (!best || rank != best_rank) return !best || rank > best_rank;
      const FairAccount& b = accounts[*best];
      if (rank == waits && owed_less(a, b) != owed_less(b, a)) return owed_less(b, a);
      const uint64_t runs_a = (uint64_t{lines[i].n_running} + 1) * b.weight;
      const uint64_t runs_b = (uint64_t{lines[*best].n_running} + 1) * a.weight;
      if (rank == due && runs_a != runs_b) return runs_a < runs_b;
      return a.last_admitted < b.last_admitted;
    };
    if (!better()) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

int64_t promise(Lines lines, std::span<FairAccount> accounts, const FairRules& rules,
                std::optional<uint32_t> claimant) {
  const int64_t head = claimant ? std::min(head_cost(lines[*claimant]), rules.first_chunk) : 0;
  const int64_t spare = rules.step_rows - head;
  int64_t sum = 0, weights = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    FairAccount& account = accounts[i];
    account.promised = std::min(int64_t{lines[i].n_missing}, std::max(rules.quantum * account.weight, account.deficit));
    sum += account.promised;
    if (account.promised > 0) weights += account.weight;
  }
  if (sum > spare) {
    sum = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      accounts[i].promised = std::min(accounts[i].promised, spare * accounts[i].weight / weights);
      sum += accounts[i].promised;
    }
  }
  if (claimant) accounts[*claimant].promised += head;
  return sum + head;
}

int64_t rows_for(const FairAccount& account, int64_t promised, int64_t budget) {
  return std::clamp(budget - (promised - account.promised), std::min(int64_t{1}, budget), budget);
}

std::optional<size_t> yielding(Lines lines, Accounts accounts, uint32_t claimant,
                               std::span<const policy::Candidate> running) {
  const FairAccount& own = accounts[claimant];
  const uint64_t n_then = uint64_t{lines[claimant].n_running} + 1;
  const auto less = [&](size_t a, const std::optional<size_t>& b) {
    return !b || owed_less(accounts[running[a].line], accounts[running[*b].line]);
  };
  std::optional<size_t> balanced, any;
  for (size_t i = running.size(); i-- > 0;) {  // the newest of a line is met first
    const uint32_t line = running[i].line;
    if (line == claimant || accounts[line].admitted || !owed_less(accounts[line], own)) continue;
    if (lines[line].n_running == 1 && (!accounts[line].settled || accounts[line].turn > 0)) continue;
    if (less(i, any)) any = i;
    if ((lines[line].n_running - 1) * uint64_t{own.weight} < n_then * accounts[line].weight) continue;
    if (less(i, balanced)) balanced = i;
  }
  return balanced || !is_starved(lines[claimant]) ? balanced : any;
}

size_t victim(Accounts accounts, std::span<const policy::Candidate> running) {
  HEDDLE_CHECK(!running.empty());
  size_t worst = running.size() - 1;
  for (size_t i = worst; i-- > 0;)
    if (owed_less(accounts[running[i].line], accounts[running[worst].line])) worst = i;
  return worst;
}

}  // namespace heddle::sched::fair
