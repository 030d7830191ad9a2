#pragma once
// What the scheduler decides, as pure functions over small structs: how many rows, who is admitted, who gives way.
// Other policies (priority, fairness) are other functions with these shapes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

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
  uint32_t n_promised = 0;  // blocks that admitted prompts still need for their later chunks
};

// A sequence is admitted only if all of its current tokens fit, not just the first chunk: else two long prompts could
// be admitted that only preempt each other.
constexpr bool fits(const RoomDemand& demand) { return demand.n_needed + demand.n_promised <= demand.n_free; }

// Who runs, in the order of admission.
struct Candidate {
  SeqId id;
};

// First come, first served: the one admitted last gives way. There is at least one.
constexpr size_t fcfs_victim(std::span<const Candidate> running) { return running.size() - 1; }

}  // namespace heddle::sched::policy
