#include "sched/priority_policy.h"

#include "sched/sequence.h"

namespace heddle::sched {

QueueKey PriorityPolicy::key(const Sequence& s, uint64_t) const { return policy::priority_key(s.priority, s.order); }

size_t PriorityPolicy::victim(std::span<const policy::Candidate> running) const {
  return policy::priority_victim(running);
}

}  // namespace heddle::sched
