#include "sched/fair_policy.h"

#include "base/check.h"
#include "sched/sequence.h"

namespace heddle::sched {

FairPolicy::FairPolicy(fair::FairRules rules) : rules_(rules) { HEDDLE_CHECK_OP(rules.quantum, >, 0); }

void FairPolicy::add_line(uint32_t line, uint32_t weight) {
  HEDDLE_CHECK_OP(line, ==, accounts_.size());
  HEDDLE_CHECK(weight >= 1 && weight <= fair::kMaxWeight);
  accounts_.push_back({weight, 0, 0, 0});
}

uint32_t FairPolicy::line(const Sequence& s) const { return s.tenant; }

QueueKey FairPolicy::key(const Sequence& s, uint64_t n_preemptions) const {
  return n_preemptions > 0 ? policy::returning_key(n_preemptions) : policy::fcfs_key(s.order);
}

void FairPolicy::begin_plan(std::span<const LineState> lines) {
  const bool before = contended_;
  contended_ = fair::contended(lines);
  if (contended_)
    fair::begin_round(lines, accounts_, rules_, n_charged_);
  else if (before)
    for (fair::FairAccount& account : accounts_) account.deficit = account.carry = 0;
  n_charged_ = 0;
}

std::optional<uint32_t> FairPolicy::next_line(std::span<const LineState> lines) const {
  return fair::next(lines, accounts_);
}

std::optional<size_t> FairPolicy::yields_to(uint32_t line, std::span<const LineState> lines,
                                            std::span<const policy::Candidate> running) const {
  if (!contended_ || !fair::is_due(lines[line], accounts_[line])) return std::nullopt;
  const std::optional<uint32_t> payer = fair::payer(lines, accounts_, line);
  if (!payer) return std::nullopt;
  for (size_t i = running.size(); i-- > 0;)
    if (running[i].line == *payer) return i;
  return std::nullopt;  // its places are held by parked sessions
}

size_t FairPolicy::victim(std::span<const policy::Candidate> running) const { return fair::victim(accounts_, running); }

void FairPolicy::charge(uint32_t line, int64_t rows) {
  if (!contended_) return;
  accounts_[line].deficit -= rows;
  n_charged_ += rows;
}

void FairPolicy::admitted(uint32_t line) { accounts_[line].last_admitted = ++n_admitted_; }

}  // namespace heddle::sched
