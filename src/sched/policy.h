#pragma once
// What the scheduler decides, as pure functions over small structs: how many rows, who is admitted, who gives way. The
// objects that a scheduler asks, one a --scheduling-policy, are in scheduling_policy.h.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "sched/queue_key.h"

namespace heddle::sched::policy {

struct RowDemand {
  uint32_t missing = 0;             // rows until the sequence's newest token
  uint32_t budget = 0;              // rows left in the step
  uint32_t long_prefill_limit = 0;  // 0: none
  bool alone = false;               // no other sequence runs or waits: the limit would help nobody
  bool may_split = true;            // chunked prefill
};

// 0: nothing now.
constexpr uint32_t rows(const RowDemand& demand) {
  if (!demand.may_split) return demand.missing <= demand.budget ? demand.missing : 0;
  uint32_t n = std::min(demand.missing, demand.budget);
  if (demand.long_prefill_limit > 0 && !demand.alone) n = std::min(n, demand.long_prefill_limit);
  return n;
}

struct RoomDemand {
  uint32_t n_needed = 0;    // blocks for all tokens known now, less those found in the prefix cache
  uint32_t n_free = 0;      // blocks that can be taken
  uint32_t n_promised = 0;  // blocks that admitted prompts still need for their later chunks, and the watermark
};

// A sequence is admitted only if all of its current tokens fit, not just the first chunk: else two long prompts could
// be admitted that only preempt each other.
constexpr bool fits(const RoomDemand& demand) { return uint64_t{demand.n_needed} + demand.n_promised <= demand.n_free; }

// Who runs, in the order of admission.
struct Candidate {
  SeqId id;
  int32_t priority = 0;
  uint64_t order = 0;  // of arrival
  uint32_t line = 0;   // its tenant's, where the policy knows tenants
};

// First come, first served: the one admitted last gives way. There is at least one.
constexpr size_t fcfs_victim(std::span<const Candidate> running) { return running.size() - 1; }

// The worst: the largest (priority, order of arrival).
constexpr size_t priority_victim(std::span<const Candidate> running) {
  size_t worst = 0;
  for (size_t i = 1; i < running.size(); ++i) {
    const Candidate &a = running[worst], &b = running[i];
    if (b.priority > a.priority || (b.priority == a.priority && b.order > a.order)) worst = i;
  }
  return worst;
}

// Queue places. A preempted sequence goes before every new one, the one preempted last first: victims are taken from
// the back, so they return in the order of their admission.
constexpr QueueKey fcfs_key(uint64_t order) { return {0, static_cast<int64_t>(order)}; }
constexpr QueueKey returning_key(uint64_t n_preemptions) { return {-1, -static_cast<int64_t>(n_preemptions)}; }
// By priority, then arrival; preemption changes neither.
constexpr QueueKey priority_key(int32_t priority, uint64_t order) { return {priority, static_cast<int64_t>(order)}; }

}  // namespace heddle::sched::policy
