#pragma once
// By (priority, order of arrival), smaller first, in one line. A preempted sequence goes back to its place. Running
// ones give way to memory pressure only, never merely because a better one waits.
#include "sched/scheduling_policy.h"

namespace heddle::sched {

class PriorityPolicy final : public SchedulingPolicy {
 public:
  QueueKey key(const Sequence& s, uint64_t n_preemptions) const override;
  size_t victim(std::span<const policy::Candidate> running) const override;
};

}  // namespace heddle::sched
