#include "sched/fcfs_policy.h"

#include "sched/sequence.h"

namespace heddle::sched {

QueueKey FcfsPolicy::key(const Sequence& s, uint64_t n_preemptions) const {
  return n_preemptions > 0 ? policy::returning_key(n_preemptions) : policy::fcfs_key(s.order);
}

size_t FcfsPolicy::victim(std::span<const policy::Candidate> running) const { return policy::fcfs_victim(running); }

}  // namespace heddle::sched
