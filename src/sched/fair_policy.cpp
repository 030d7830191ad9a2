#include "sched/fair_policy.h"

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
  const bool before = contended_;
  contended_ = fair::contended(lines);
  if (contended_) {
    fair::begin_round(lines, accounts_, rules_);
  } else if (before) {
    for (fair::FairAccount& account : accounts_) account.deficit = account.claim = account.planned = account.carry = 0;
  }
}

uint32_t FairPolicy::rows_for(uint32_t line, uint32_t budget, std::span<const LineState> lines) const {
  if (!contended_) return budget;
  return static_cast<uint32_t>(fair::rows_for(lines, accounts_, rules_, line, budget));
}

std::optional<uint32_t> FairPolicy::next_line(std::span<const LineState> lines) const {
  return fair::next(lines, accounts_, rules_);
}

std::optional<size_t> FairPolicy::yields_to(uint32_t line, std::span<const LineState> lines,
                                            std::span<const policy::Candidate> running) const {
  if (!contended_ || !fair::is_due(lines[line], accounts_[line], rules_)) return std::nullopt;
  return fair::yielding(lines, accounts_, line, running);
}

size_t FairPolicy::victim(std::span<const policy::Candidate> running) const { return fair::victim(accounts_, running); }

void FairPolicy::charge(uint32_t line, int64_t rows) {
  if (!contended_) return;
  accounts_[line].deficit -= rows;
  accounts_[line].planned += rows;
}

void FairPolicy::admitted(uint32_t line) {
  accounts_[line].last_admitted = ++n_admitted_;
  accounts_[line].admitted = true;
  accounts_[line].claim = 0;
}

}  // namespace heddle::sched
