#include "cpu/attend_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cpu/attend_kernels.h"
#include "cpu/grain.h"
#include "cpu/step_memory.h"
#include "cpu/team.h"

namespace heddle::cpu {
namespace {

constexpr uint32_t kMaxUnitFloats =
    8192;                               // rows * padded dim of a task that has more than one token: its state fits L1
constexpr uint32_t kMaxSplitRows = 16;  // more rows are cut by rows alone: partial results would outgrow the caches
constexpr double kBytesPerNs = 16;      // of K and V, one thread
constexpr double kFmaPerNs = 50;        // AVX-512, one thread

struct Shape {
  uint32_t group;
  uint32_t padded_dim;
  uint32_t max_tokens;  // in a task
  double slowness;
};

Shape shape_of(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, Isa isa) {
  Shape shape{};
  shape.group = n_heads / n_kv_heads;
  shape.padded_dim = (head_dim + 15) / 16 * 16;
  shape.max_tokens = std::max(1u, kMaxUnitFloats / (shape.group * shape.padded_dim));
  shape.slowness = slowness(isa);
  return shape;
}

// Of `tokens` adjacent tokens, the last at `position`, one kv head.
double cost_ns(const Shape& shape, uint32_t tokens, uint32_t n_positions) {
  const double values = 2.0 * n_positions * shape.padded_dim;  // of K and V
  return shape.slowness * (values * 2 / kBytesPerNs + values * tokens * shape.group / kFmaPerNs) + 300;
}

struct ChunkRange {
  uint32_t first, last;
};

// Chunks that any of the tokens sees, the first at position p, the last at position p + n - 1.
ChunkRange chunks_of(uint32_t p, uint32_t n, uint32_t window) {
  const uint32_t begin = window != 0 && p + 1 > window ? p + 1 - window : 0;
  return {begin / kAttendChunk, (p + n - 1) / kAttendChunk + 1};
}

// How a sequence is cut; the same for each of its kv heads.
struct Cut {
  uint32_t tokens;  // in a task
  uint32_t chunks;  // of positions in a task; 0 = all
};

Cut cut(const device::BatchSeq& seq, const Shape& shape, uint32_t window, double wanted_ns) {
  const ChunkRange all = chunks_of(seq.first_position, seq.n_rows, window);
  const uint32_t n_chunks = all.last - all.first;
  const uint32_t positions = seq.first_position + seq.n_rows - all.first * kAttendChunk;
  const double cost = cost_ns(shape, seq.n_rows, positions);
  if (seq.n_rows * shape.group <= kMaxSplitRows && seq.n_rows <= shape.max_tokens) {
    const auto parts = static_cast<uint32_t>(std::clamp(std::round(cost / wanted_ns), 1.0, double(n_chunks)));
    return {seq.n_rows, parts == 1 ? 0 : (n_chunks + parts - 1) / parts};
  }
  // Whole register tiles of 8 rows or more, even where the last tokens of a long context cost more than a chunk should.
  const double wanted = seq.n_rows * wanted_ns / cost;
  const uint32_t least = std::max(1u, (8 + shape.group - 1) / shape.group);
  const auto tokens =
      static_cast<uint32_t>(std::clamp(wanted, double(least), double(std::max(least, shape.max_tokens))));
  return {std::min(tokens, shape.max_tokens), 0};
}

}  // namespace

size_t attend_scratch_floats(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim) {
  const Shape shape = shape_of(n_heads, n_kv_heads, head_dim, Isa::scalar);
  const size_t rows = size_t{shape.max_tokens} * shape.group;
  return kAttendScores + rows * (2 * size_t{shape.padded_dim} + 2);
}

AttendPlan plan_attend(const device::Batch& batch, const device::AttentionSpec& spec, uint32_t n_threads, Isa isa,
                       StepMemory& memory, uint64_t n_completed) {
  const Shape shape = shape_of(spec.n_heads, spec.n_kv_heads, spec.head_dim, isa);
  double total = 0;
  for (const device::BatchSeq& seq : batch.seqs) {
    HEDDLE_CHECK_OP(seq.n_rows, >=, 1u);
    const ChunkRange all = chunks_of(seq.first_position, seq.n_rows, spec.window);
    total += spec.n_kv_heads * cost_ns(shape, seq.n_rows, seq.first_position + seq.n_rows - all.first * kAttendChunk);
  }
  const double wanted = std::max(chunk_cost(total, n_threads), total / (Team::kMaxChunks / 2));

  size_t n_tasks = 0;
  for (const device::BatchSeq& seq : batch.seqs) {
    const Cut c = cut(seq, shape, spec.window, wanted);
    const ChunkRange all = chunks_of(seq.first_position, seq.n_rows, spec.window);
    const uint32_t parts = c.chunks == 0 ? 1 : (all.last - all.first + c.chunks - 1) / c.chunks;
    n_tasks += size_t{spec.n_kv_heads} * ((seq.n_rows + c.tokens - 1) / c.tokens) * parts;
  }
  auto* tasks = memory.take<AttendTask>(n_tasks, n_completed);
  auto* ends = memory.take<uint32_t>(n_tasks, n_completed);
  size_t n = 0, n_chunks = 0;
  double in_chunk = 0;
  // Small tasks share a chunk of the command, until it costs what one should.
  const auto append = [&](const AttendTask& task, double cost) {
    if (n > 0 && (in_chunk + cost > 1.25 * wanted)) {
      ends[n_chunks++] = static_cast<uint32_t>(n);
      in_chunk = 0;
    }
    tasks[n++] = task;
    in_chunk += cost;
  };
  for (uint32_t s = 0; s < batch.seqs.size(); ++s) {
    const device::BatchSeq& seq = batch.seqs[s];
    const Cut c = cut(seq, shape, spec.window, wanted);
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      for (uint32_t token = 0; token < seq.n_rows; token += c.tokens) {
        const uint32_t tokens = std::min(c.tokens, seq.n_rows - token);
        const uint32_t position = seq.first_position + token;
        const ChunkRange all = chunks_of(position, tokens, spec.window);
        if (c.chunks == 0) {
          append({s, head, token, tokens, all.first, all.last, nullptr},
                 cost_ns(shape, tokens, position + tokens - all.first * kAttendChunk));
          continue;
        }
        const uint32_t parts = (all.last - all.first + c.chunks - 1) / c.chunks;
        const size_t floats = size_t{all.last - all.first} * tokens * shape.group * (shape.padded_dim + 16);
        auto* split = new (memory.take<AttendSplit>(1, n_completed))
            AttendSplit{.left = parts,
                        .n_tasks = parts,
                        .first_chunk = all.first,
                        .last_chunk = all.last,
                        .partial = memory.take<float>(floats, n_completed)};
        for (uint32_t first = all.first; first < all.last; first += c.chunks) {
          const uint32_t last = std::min(first + c.chunks, all.last);
          append({s, head, token, tokens, first, last, split}, cost_ns(shape, tokens, (last - first) * kAttendChunk));
        }
      }
    }
  }
  HEDDLE_CHECK_OP(n, ==, n_tasks);
  ends[n_chunks++] = static_cast<uint32_t>(n);
  return {{tasks, n}, {ends, n_chunks}};
}

}  // namespace heddle::cpu
