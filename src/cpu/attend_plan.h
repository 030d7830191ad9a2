#pragma once
// How a step's attention is cut into tasks: by sequence, kv head and query tokens, and, where a few rows see long
// contexts, by chunks of positions too, whose partial results are merged in ascending order by whoever finishes last. A
// plan depends on the batch and the shape alone, so all layers of one shape share it. No cut changes a result
// (attend_kernels.h). Made on the loop in memory that lives until the step is done; read by the team.
#include <atomic>
#include <cstdint>
#include <span>

#include "cpu/isa.h"
#include "device/attention.h"
#include "device/batch.h"

namespace heddle::cpu {

class StepMemory;

// Rows whose positions are divided among several tasks.
struct AttendSplit {
  std::atomic<uint32_t> left;  // tasks that have not finished; back at n_tasks when the last has
  uint32_t n_tasks;
  uint32_t first_chunk, last_chunk;
  float* partial;  // [last_chunk - first_chunk][rows][padded dim + 16]
};

struct AttendTask {
  uint32_t seq;
  uint32_t kv_head;
  uint32_t first_token;  // of the sequence's rows in this step
  uint32_t n_tokens;
  uint32_t first_chunk, last_chunk;
  AttendSplit* split;  // null: the task has all positions
};

struct AttendPlan {
  std::span<const AttendTask> tasks;
  std::span<const uint32_t> chunk_end;  // [n_chunks] tasks of command chunk c: [chunk_end[c - 1], chunk_end[c])
};

// Floats of a worker's scratch that any task of this shape needs.
size_t attend_scratch_floats(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim);

AttendPlan plan_attend(const device::Batch& batch, const device::AttentionSpec& spec, uint32_t n_threads, Isa isa,
                       StepMemory& memory, uint64_t n_completed);

}  // namespace heddle::cpu
