#pragma once
// Tenants in turn, by weight: the accounts that the rules of fair_share.h need between plans. A line is a tenant;
// inside one it is first come, first served.
#include <vector>

#include "sched/fair_share.h"
#include "sched/scheduling_policy.h"

namespace heddle::sched {

class FairPolicy final : public SchedulingPolicy {
 public:
  explicit FairPolicy(fair::FairRules rules);

  void add_line(uint32_t line, uint32_t weight) override;
  uint32_t line(const Sequence& s) const override;
  QueueKey key(const Sequence& s, uint64_t n_preemptions) const override;
  void begin_plan(std::span<const LineState> lines) override;
  uint32_t rows_for(uint32_t line, uint32_t budget, std::span<const LineState> lines) const override;
  std::optional<uint32_t> next_line(std::span<const LineState> lines) const override;
  std::optional<size_t> yields_to(uint32_t line, std::span<const LineState> lines,
                                  std::span<const policy::Candidate> running) override;
  size_t victim(std::span<const policy::Candidate> running) const override;
  void charge(uint32_t line, int64_t rows) override;
  void admitted(uint32_t line) override;

  std::span<const fair::FairAccount> accounts() const { return accounts_; }

 private:
  fair::FairRules rules_;
  std::vector<fair::FairAccount> accounts_;  // by line
  bool contended_ = false;
  int64_t promised_ = 0;              // rows, to all lines, in the plan under way
  std::optional<uint32_t> no_place_;  // the line for whose head the last plan had no place, nor an exchange
  uint64_t n_admitted_ = 0;
};

}  // namespace heddle::sched
