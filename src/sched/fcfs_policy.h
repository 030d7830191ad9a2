#pragma once
// First come, first served, in one line; a preempted sequence goes before every new one.
#include "sched/scheduling_policy.h"

namespace heddle::sched {

class FcfsPolicy final : public SchedulingPolicy {
 public:
  QueueKey key(const Sequence& s, uint64_t n_preemptions) const override;
  size_t victim(std::span<const policy::Candidate> running) const override;
};

}  // namespace heddle::sched
