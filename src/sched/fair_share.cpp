#include "sched/fair_share.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::sched::fair {

namespace {

// a.deficit / a.weight < b.deficit / b.weight
bool owed_less(const FairAccount& a, const FairAccount& b) {
  return a.deficit * int64_t{b.weight} < b.deficit * int64_t{a.weight};
}

int64_t cap(const LineState& line) { return line.n_ready > 0 ? int64_t{line.head_cost} : 0; }

// Shares `pool` rows out among the running lines below their caps.
void share_out(Lines lines, std::span<FairAccount> accounts, int64_t pool) {
  const auto open = [&](size_t i) { return lines[i].n_running > 0 && accounts[i].deficit < cap(lines[i]); };
  int64_t weights = 0;
  for (size_t i = 0; i < lines.size(); ++i)
    if (open(i)) weights += accounts[i].weight;
  // Lines that reach their cap leave the rest to the others; each pass closes one at least, or is the last.
  for (bool again = true; again && weights > 0 && pool > 0;) {
    again = false;
    const int64_t pool_of_pass = pool, weights_of_pass = weights;
    for (size_t i = 0; i < lines.size(); ++i) {
      FairAccount& account = accounts[i];
      const int64_t room = cap(lines[i]) - account.deficit;
      if (!open(i) || (pool_of_pass * account.weight) / weights_of_pass < room) continue;
      account.deficit += room;
      account.carry = 0;
      pool -= room;
      weights -= account.weight;
      again = true;
    }
  }
  if (weights == 0) return;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!open(i)) continue;
    FairAccount& account = accounts[i];
    const int64_t owed = pool * account.weight + std::min(account.carry, weights - 1);
    account.deficit = std::min(account.deficit + owed / weights, cap(lines[i]));
    account.carry = owed % weights;
  }
}

}  // namespace

bool contended(Lines lines) {
  size_t n_active = 0, n_waiting = 0;
  for (const LineState& line : lines) {
    n_active += line.n_ready > 0 || line.n_running > 0;
    n_waiting += line.n_ready > 0;
  }
  return n_waiting > 0 && n_active > 1;
}

void begin_round(Lines lines, std::span<FairAccount> accounts, const FairRules& rules, int64_t n_charged) {
  HEDDLE_CHECK_OP(lines.size(), <=, accounts.size());
  int64_t pool = n_charged;
  for (size_t i = 0; i < lines.size(); ++i) {
    FairAccount& account = accounts[i];
    account.deficit = std::min(account.deficit, cap(lines[i]));
    if (lines[i].n_running > 0) continue;
    const int64_t owed = std::min(rules.quantum * account.weight, cap(lines[i]) - account.deficit);
    account.deficit += owed;
    if (lines[i].n_ready > 0) pool -= owed;
  }
  if (pool > 0) share_out(lines, accounts, pool);
  for (FairAccount& account : accounts) account.deficit = std::max(account.deficit, -rules.max_debt * account.weight);
}

std::optional<uint32_t> next(Lines lines, Accounts accounts) {
  std::optional<uint32_t> best;
  for (uint32_t i = 0; i < lines.size(); ++i) {
    if (lines[i].n_ready == 0) continue;
    const bool better =
        !best || owed_less(accounts[*best], accounts[i]) ||
        (!owed_less(accounts[i], accounts[*best]) && accounts[i].last_admitted < accounts[*best].last_admitted);
    if (better) best = i;
  }
  return best;
}

bool is_due(const LineState& line, const FairAccount& account) {
  return line.n_ready > 0 && account.deficit >= int64_t{line.head_cost};
}

std::optional<uint32_t> payer(Lines lines, Accounts accounts, uint32_t claimant) {
  const uint64_t own = lines[claimant].n_running, own_weight = accounts[claimant].weight;
  std::optional<uint32_t> balanced, any;
  for (uint32_t i = 0; i < lines.size(); ++i) {
    if (i == claimant || lines[i].n_running == 0 || accounts[i].deficit >= 0) continue;
    if (!any || owed_less(accounts[i], accounts[*any])) any = i;
    if ((lines[i].n_running - 1) * own_weight < (own + 1) * accounts[i].weight) continue;
    if (!balanced || owed_less(accounts[i], accounts[*balanced])) balanced = i;
  }
  return balanced || own > 0 ? balanced : any;
}

size_t victim(Accounts accounts, std::span<const policy::Candidate> running) {
  HEDDLE_CHECK(!running.empty());
  size_t worst = running.size() - 1;
  for (size_t i = worst; i-- > 0;)
    if (owed_less(accounts[running[i].line], accounts[running[worst].line])) worst = i;
  return worst;
}

}  // namespace heddle::sched::fair
