// The attention ops of CpuDevice.
#include <algorithm>

#include "base/check.h"
#include "cpu/cpu_device.h"
#include "cpu/grain.h"
#include "cpu/quantise_columns.h"

namespace heddle::cpu {
namespace {

constexpr double kRopeNs = 0.4;   // a value of q, AVX-512
constexpr double kStoreNs = 0.8;  // a value of k and v

static_assert(sizeof(BlockId) == sizeof(uint32_t), "block tables are read as plain numbers by the kernels");

const uint32_t* block_numbers(const BlockId* blocks) { return &blocks->value; }

struct RopeStoreArgs {
  const device::BatchSeq* seqs;
  const uint32_t* row_seq;
  const int32_t* positions;
  float* qkv;
  uint32_t n_rows, step;
  const RopeTable* table;
  const OpKernels* ops;
  const float* q_norm;
  const float* k_norm;
  float norm_epsilon;
  uint32_t n_heads, n_kv_heads, head_dim;
  uint8_t* k;
  uint8_t* v;
  size_t k_head_bytes, v_head_bytes, block_stride;
  uint32_t block_size;
  bool f32;  // the cache holds floats
};

// Columns of a K tile and rows of V, as floats.
void store_f32(const float* k, const float* v, uint32_t dim, size_t padded, float* k_column, float* v_row) {
  for (uint32_t i = 0; i < dim; ++i) k_column[size_t{i} * 16] = k[i];
  std::copy(v, v + dim, v_row);
  std::fill(v_row + dim, v_row + padded, 0.0f);
}

void rope_store_row(const RopeStoreArgs& a, uint32_t row) {
  const uint32_t dim = a.head_dim;
  const size_t width = size_t{a.n_heads + 2 * a.n_kv_heads} * dim;
  float* q = a.qkv + row * width;
  float* k = q + size_t{a.n_heads} * dim;
  float* v = k + size_t{a.n_kv_heads} * dim;
  const float* cos_sin = a.table->row(static_cast<uint32_t>(a.positions[row]));
  const auto turn = [&](float* head, const float* norm) {
    if (norm != nullptr) a.ops->norm(head, nullptr, norm, dim, a.norm_epsilon, head);
    a.ops->rope(head, cos_sin, dim);
  };
  for (uint32_t h = 0; h < a.n_heads; ++h) turn(q + size_t{h} * dim, a.q_norm);

  const device::BatchSeq& seq = a.seqs[a.row_seq[row]];
  const uint32_t position = seq.first_position + (row - seq.first_row);
  const size_t block = seq.blocks[position / a.block_size].value * a.block_stride;
  const uint32_t inside = position % a.block_size;
  const size_t padded = (dim + 15) / 16 * 16;
  for (uint32_t h = 0; h < a.n_kv_heads; ++h) {
    turn(k + size_t{h} * dim, a.k_norm);
    if (a.f32) {
      store_f32(
          k + size_t{h} * dim, v + size_t{h} * dim, dim, padded,
          reinterpret_cast<float*>(a.k + block + h * a.k_head_bytes) + size_t{inside / 16} * 16 * dim + inside % 16,
          reinterpret_cast<float*>(a.v + block + h * a.v_head_bytes) + inside * padded);
      continue;
    }
    auto* tile = reinterpret_cast<uint16_t*>(a.k + block + h * a.k_head_bytes) + size_t{inside / 16} * 16 * dim;
    a.ops->store_k(k + size_t{h} * dim, dim, tile + inside % 16);
    auto* rows = reinterpret_cast<uint16_t*>(a.v + block + h * a.v_head_bytes);
    a.ops->store_v(v + size_t{h} * dim, dim, rows + inside * padded);
  }
}

struct AttendArgs {
  const AttendTask* tasks;
  const uint32_t* chunk_end;
  const device::BatchSeq* seqs;
  const float* qkv;
  float* out;
  ActCell* cells;
  const AttendKernels* kernels;
  const uint8_t* k;
  const uint8_t* v;
  size_t k_head_bytes, v_head_bytes, block_stride;
  uint32_t block_size;
  uint32_t n_heads, n_kv_heads, head_dim;
  float scale;
  uint32_t window;
  Isa isa;
  void (*attend)(const AttendUnit&);
};

void run_attend_task(const AttendArgs& a, const AttendTask& task, Worker& worker) {
  const device::BatchSeq& seq = a.seqs[task.seq];
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const uint32_t row = seq.first_row + task.first_token;
  const uint32_t first_col = task.kv_head * group * a.head_dim;
  const size_t ldq = size_t{a.n_heads + 2 * a.n_kv_heads} * a.head_dim;
  const size_t ldo = size_t{a.n_heads} * a.head_dim;
  AttendUnit unit{
      .q = a.qkv + row * ldq + first_col,
      .ldq = ldq,
      .n_tokens = task.n_tokens,
      .group = group,
      .head_dim = a.head_dim,
      .padded_dim = (a.head_dim + 15) / 16 * 16,
      .scale = a.scale,
      .first_position = seq.first_position + task.first_token,
      .window = a.window,
      .blocks = block_numbers(seq.blocks),
      .block_size = a.block_size,
      .block_stride = a.block_stride,
      .k = a.k + task.kv_head * a.k_head_bytes,
      .v = a.v + task.kv_head * a.v_head_bytes,
      .first_chunk = task.first_chunk,
      .last_chunk = task.last_chunk,
      .out = a.out + row * ldo + first_col,
      .ldo = ldo,
      .partial = nullptr,
      .scratch = reinterpret_cast<float*>(worker.scratch),
  };
  if (AttendSplit* split = task.split; split != nullptr) {
    const size_t rows = size_t{task.n_tokens} * group;
    unit.partial = split->partial + (task.first_chunk - split->first_chunk) * rows * (unit.padded_dim + 16);
    a.attend(unit);
    if (split->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    split->left.store(split->n_tasks, std::memory_order_relaxed);  // for the next layer
    unit.partial = split->partial;
    unit.first_chunk = split->first_chunk;
    unit.last_chunk = split->last_chunk;
    a.kernels->merge(unit);
  } else {
    a.attend(unit);
  }
  if (a.cells != nullptr)
    quantise_columns(a.isa, a.out, a.n_heads * a.head_dim, row, row + task.n_tokens, first_col,
                     first_col + group * a.head_dim, a.cells);
}

}  // namespace

void CpuDevice::rope_store(device::Queue&, const device::AttentionSpec& spec, const device::Batch& batch,
                           device::Tensor qkv) {
  const device::KvSpec& kv = kv_.layer(spec.layer);
  HEDDLE_CHECK(kv.n_kv_heads == spec.n_kv_heads && kv.head_dim == spec.head_dim);
  HEDDLE_CHECK(spec.n_heads % spec.n_kv_heads == 0);
  HEDDLE_CHECK_OP(qkv.cols, ==, (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim);
  HEDDLE_CHECK_OP(qkv.rows, ==, batch.n_rows);
  HEDDLE_CHECK(spec.q_norm.size == 0 || spec.q_norm.size == spec.head_dim);
  HEDDLE_CHECK(spec.k_norm.size == 0 || spec.k_norm.size == spec.head_dim);
  flush();
  overwritten(qkv);
  if (qkv.rows == 0) return;
  const double ns =
      slow() * spec.head_dim * (kRopeNs * (spec.n_heads + spec.n_kv_heads) + kStoreNs * 2 * spec.n_kv_heads);
  const RopeStoreArgs args{
      .seqs = batch.seqs.data(),
      .row_seq = batch.row_seq.data(),
      .positions = batch.positions.data(),
      .qkv = qkv.data,
      .n_rows = qkv.rows,
      .step = rows_per_chunk(qkv.rows, ns, team_.n_threads()),
      .table = weights_->rope[spec.rope_table].get(),
      .ops = &ops_,
      .q_norm = spec.q_norm.size == 0 ? nullptr : spec.q_norm.data,
      .k_norm = spec.k_norm.size == 0 ? nullptr : spec.k_norm.data,
      .norm_epsilon = spec.norm_epsilon,
      .n_heads = spec.n_heads,
      .n_kv_heads = spec.n_kv_heads,
      .head_dim = spec.head_dim,
      .k = kv_.k(spec.layer, 0),
      .v = kv_.v(spec.layer, 0),
      .k_head_bytes = kv_.k_head_bytes(spec.layer),
      .v_head_bytes = kv_.v_head_bytes(spec.layer),
      .block_stride = kv_.block_stride(),
      .block_size = kv_.block_size(),
      .f32 = options_.compute == device::Compute::f32,
  };
  const uint32_t n_chunks = (args.n_rows + args.step - 1) / args.step;
  team_.append<RopeStoreArgs>(n_chunks, args, [](const RopeStoreArgs& a, uint32_t chunk, Worker&) {
    const uint32_t last = std::min(a.n_rows, (chunk + 1) * a.step);
    for (uint32_t row = chunk * a.step; row < last; ++row) rope_store_row(a, row);
  });
}

const AttendPlan& CpuDevice::plan_of(const device::AttentionSpec& spec, const device::Batch& batch) {
  // A batch lives until its step is done and plans are dropped with the step, so an address names one batch.
  for (const KnownPlan& known : plans_)
    if (known.seqs == batch.seqs.data() && known.n_seqs == batch.seqs.size() && known.n_heads == spec.n_heads &&
        known.n_kv_heads == spec.n_kv_heads && known.head_dim == spec.head_dim && known.window == spec.window)
      return known.plan;
  plans_.push_back({batch.seqs.data(), batch.seqs.size(), spec.n_heads, spec.n_kv_heads, spec.head_dim, spec.window,
                    plan_attend(batch, spec, team_.n_threads(), options_.isa, memory_, team_.n_completed())});
  return plans_.back().plan;
}

void CpuDevice::attend(device::Queue&, const device::AttentionSpec& spec, const device::Batch& batch,
                       device::Tensor qkv, device::Tensor out) {
  const device::KvSpec& kv = kv_.layer(spec.layer);
  HEDDLE_CHECK(kv.n_kv_heads == spec.n_kv_heads && kv.head_dim == spec.head_dim);
  HEDDLE_CHECK_OP(qkv.cols, ==, (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim);
  HEDDLE_CHECK_OP(out.cols, ==, spec.n_heads * spec.head_dim);
  HEDDLE_CHECK(qkv.rows == batch.n_rows && out.rows == batch.n_rows);
  flush();
  overwritten(out);
  if (out.rows == 0) return;
  const size_t scratch = attend_scratch_floats(spec.n_heads, spec.n_kv_heads, spec.head_dim) * sizeof(float);
  if (scratch > team_.scratch_bytes()) {  // at most once a shape, in the first step
    finish();
    team_.reserve_scratch(scratch);
  }
  const AttendPlan& plan = plan_of(spec, batch);
  const bool whole_cells = spec.n_heads / spec.n_kv_heads * spec.head_dim % kCellValues == 0;
  const AttendArgs args{
      .tasks = plan.tasks.data(),
      .chunk_end = plan.chunk_end.data(),
      .seqs = batch.seqs.data(),
      .qkv = qkv.data,
      .out = out.data,
      .cells = whole_cells ? cells_to_write(out) : nullptr,
      .kernels = &attend_,
      .k = kv_.k(spec.layer, 0),
      .v = kv_.v(spec.layer, 0),
      .k_head_bytes = kv_.k_head_bytes(spec.layer),
      .v_head_bytes = kv_.v_head_bytes(spec.layer),
      .block_stride = kv_.block_stride(),
      .block_size = kv_.block_size(),
      .n_heads = spec.n_heads,
      .n_kv_heads = spec.n_kv_heads,
      .head_dim = spec.head_dim,
      .scale = spec.scale,
      .window = spec.window,
      .isa = options_.isa,
      .attend = options_.compute == device::Compute::f32 ? attend_.attend_f32 : attend_.attend,
  };
  team_.append<AttendArgs>(static_cast<uint32_t>(plan.chunk_end.size()), args,
                           [](const AttendArgs& a, uint32_t chunk, Worker& worker) {
                             const uint32_t first = chunk == 0 ? 0 : a.chunk_end[chunk - 1];
                             for (uint32_t i = first; i < a.chunk_end[chunk]; ++i)
                               run_attend_task(a, a.tasks[i], worker);
                           });
}

}  // namespace heddle::cpu
