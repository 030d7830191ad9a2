#include "sched/scheduling_policy.h"

#include "base/check.h"
#include "sched/fair_policy.h"
#include "sched/fcfs_policy.h"
#include "sched/priority_policy.h"

namespace heddle::sched {

void SchedulingPolicy::add_line(uint32_t, uint32_t) {}

uint32_t SchedulingPolicy::line(const Sequence&) const { return 0; }

void SchedulingPolicy::begin_plan(std::span<const LineState>) {}

uint32_t SchedulingPolicy::rows_for(uint32_t, uint32_t budget, std::span<const LineState>) const { return budget; }

std::optional<uint32_t> SchedulingPolicy::next_line(std::span<const LineState> lines) const {
  if (lines.empty() || lines[0].n_ready == 0) return std::nullopt;
  return 0;
}

std::optional<size_t> SchedulingPolicy::yields_to(uint32_t, std::span<const LineState>,
                                                  std::span<const policy::Candidate>) {
  return std::nullopt;
}

void SchedulingPolicy::charge(uint32_t, int64_t) {}

void SchedulingPolicy::admitted(uint32_t) {}

std::unique_ptr<SchedulingPolicy> make_policy(const Config& config) {
  switch (config.policy) {
    case PolicyKind::fcfs:
      return std::make_unique<FcfsPolicy>();
    case PolicyKind::priority:
      return std::make_unique<PriorityPolicy>();
    case PolicyKind::fair: {
      const int64_t n_rows = config.max_num_batched_tokens;
      return std::make_unique<FairPolicy>(fair::FairRules{.quantum = config.fair_quantum,
                                                          .max_debt = int64_t{config.max_model_len} + 4 * n_rows,
                                                          .step_rows = n_rows,
                                                          .first_chunk = n_rows - (config.max_num_seqs - 1)});
    }
  }
  check_failed(__FILE__, __LINE__, "a policy's kind", "");
}

}  // namespace heddle::sched
