#include "sched/fair_policy.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/sequence.h"

namespace heddle::sched {

FairPolicy::FairPolicy(fair::FairRules rules) : rules_(rules) {
  HEDDLE_CHECK(rules.quantum > 0 && rules.first_chunk > 0 && rules.step_rows > 0 && rules.max_debt > 0);
}

void FairPolicy::add_line(uint32_t line, uint32_t weight) {
  HEDDLE_CHECK_OP(line, <=, accounts_.size());
  HEDDLE_CHECK(weight >= 1 && weight <= fair::kMaxWeight);
  if (line == accounts_.size()) accounts_.emplace_back();
  accounts_[line] = {};
  accounts_[line].weight = weight;
}

uint32_t FairPolicy::line(const Sequence& s) const { return s.tenant; }

QueueKey FairPolicy::key(const Sequence& s, uint64_t n_preemptions) const {
  return n_preemptions > 0 ? policy::returning_key(n_preemptions) : policy::fcfs_key(s.order);
}

void FairPolicy::begin_plan(std::span<const LineState> lines) {
  const bool before = std::exchange(contended_, fair::contended(lines));
  if (!contended_) return;
  if (!before) {
    for (fair::FairAccount& account : accounts_)
      account = {.weight = account.weight, .last_admitted = account.last_admitted};
  }
  fair::begin_round(lines, accounts_, rules_, !before);
  // Rows are kept for a starved line's head when it is due. If it gets no place they are lost: then in every other plan
  // only.
  std::optional<uint32_t> claimant = fair::next(lines, accounts_, rules_);
  if (claimant && (claimant == no_place_ || lines[*claimant].n_running > 0 ||
                   !fair::is_due(lines[*claimant], accounts_[*claimant], rules_)))
    claimant.reset();
  promised_ = fair::promise(lines, accounts_, rules_, claimant);
  no_place_.reset();
}

uint32_t FairPolicy::rows_for(uint32_t line, uint32_t budget, std::span<const LineState>) const {
  if (!contended_) return budget;
  return static_cast<uint32_t>(fair::rows_for(accounts_[line], promised_, budget));
}

std::optional<uint32_t> FairPolicy::next_line(std::span<const LineState> lines) const {
  return fair::next(lines, accounts_, rules_);
}

std::optional<size_t> FairPolicy::yields_to(uint32_t line, std::span<const LineState> lines,
                                            std::span<const policy::Candidate> running) {
  if (!contended_) return std::nullopt;
  std::optional<size_t> at;
  if (fair::is_due(lines[line], accounts_[line], rules_)) at = fair::yielding(lines, accounts_, line, running);
  if (!at) no_place_ = line;
  return at;
}

size_t FairPolicy::victim(std::span<const policy::Candidate> running) const { return fair::victim(accounts_, running); }

void FairPolicy::charge(uint32_t line, int64_t rows) {
  if (!contended_) return;
  fair::FairAccount& account = accounts_[line];
  fair::charge(account, rows);
  const int64_t kept = std::clamp(rows, int64_t{0}, account.promised);
  account.promised -= kept;
  promised_ -= kept;
}

void FairPolicy::admitted(uint32_t line) { fair::admitted(accounts_[line], rules_, ++n_admitted_); }

}  // namespace heddle::sched
