// The ops of CpuDevice that work row by row: a command each, in chunks of rows.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cpu/act_quant.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_linear.h"
#include "cpu/row_chunks.h"

namespace heddle::cpu {
namespace {

// Nanoseconds a value with AVX-512, one thread.
constexpr double kNormNs = 0.15;
constexpr double kMoveNs = 0.15;
constexpr double kEmbedNs = 1.5;

}  // namespace

double CpuDevice::slow() const { return slowness(options_.isa); }

ActCell* CpuDevice::cells_to_write(const device::Tensor& t) {
  if (t.aux == nullptr) return nullptr;
  Companion& c = *companion(t);
  c.fresh = weights_->reads_cells.load(std::memory_order_relaxed);
  return c.fresh ? c.cells : nullptr;
}

void CpuDevice::copy_blocks(device::Queue&, std::span<const device::BlockCopy> copies) {
  flush();
  if (copies.empty()) return;
  for (const device::BlockCopy& copy : copies) {
    HEDDLE_CHECK_OP(copy.from.value, <, kv_.n_blocks());
    HEDDLE_CHECK_OP(copy.to.value, <, kv_.n_blocks());
    HEDDLE_CHECK_OP(copy.from.value, !=, copy.to.value);
  }
  // A chunk makes its pieces of all copies, in their order; pieces of a block are independent of each other.
  static constexpr size_t kPiece = size_t{8} << 10;
  struct Args {
    const device::BlockCopy* copies;
    size_t n_copies;
    const KvCache* kv;
    RowChunks pieces;
  };
  const auto n_pieces = static_cast<uint32_t>((kv_.block_stride() + kPiece - 1) / kPiece);
  const double ns = (kMoveNs * kPiece / sizeof(float) + kRowNs) * static_cast<double>(copies.size());
  const RowChunks pieces = chunk_rows(n_pieces, ns, team_.n_threads());
  const Args args{copies.data(), copies.size(), &kv_, pieces};
  team_.append<Args>(pieces.chunks(), args, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t first = a.pieces.first(chunk) * kPiece;
    const size_t last = std::min(a.pieces.last(chunk) * kPiece, a.kv->block_stride());
    for (size_t i = 0; i < a.n_copies; ++i)
      std::memcpy(a.kv->block(a.copies[i].to) + first, a.kv->block(a.copies[i].from) + first, last - first);
  });
}

void CpuDevice::embed(device::Queue&, const device::Linear& table, const device::Batch& batch, float scale,
                      device::Tensor out) {
  const PackedLinear& packed = static_cast<const CpuLinear&>(table).packed();
  flush();
  HEDDLE_CHECK_OP(out.rows, ==, batch.n_rows);
  HEDDLE_CHECK_OP(out.cols, ==, packed.cols());
  overwritten(out);
  if (out.rows == 0) return;
  struct Args {
    const PackedLinear* table;
    const TokenId* tokens;
    const Sampler* sampler;
    const OpKernels* ops;
    device::Tensor out;
    RowChunks rows;
    float scale;
  };
  const RowChunks rows = chunk_rows(out.rows, kEmbedNs * out.cols + kRowNs, team_.n_threads());
  team_.append<Args>(rows.chunks(), {&packed, batch.tokens.data(), sampler_.get(), &ops_, out, rows, scale},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         TokenId token = a.tokens[r];
                         if (token < 0) token = a.sampler->last_token(SlotId{static_cast<uint32_t>(-(token + 1))});
                         // A slot whose last row held a NaN has no token; its sequence ends, this row is never seen.
                         token = std::clamp(token, 0, static_cast<TokenId>(a.table->rows()) - 1);
                         float* out = a.out.data + size_t{r} * a.out.cols;
                         a.table->dequantize_row(static_cast<uint32_t>(token), out);
                         if (a.scale != 1.0f) a.ops->scale(out, a.scale, a.out.cols, out);
                       }
                     });
}

void CpuDevice::append_norm(device::Tensor x, const float* y, device::Vector weight, float epsilon,
                            device::Tensor out) {
  flush();
  HEDDLE_CHECK_OP(x.cols, ==, weight.size);
  HEDDLE_CHECK(x.rows == out.rows && x.cols == out.cols);
  if (y != nullptr) overwritten(x);
  ActCell* cells = cells_to_write(out);
  if (x.rows == 0) return;
  struct Args {
    device::Tensor x;
    const float* y;
    const float* weight;
    float epsilon;
    Isa isa;
    float* out;
    ActCell* cells;
    const OpKernels* ops;
    RowChunks rows;
  };
  const double ns = slow() * x.cols * (kNormNs + (cells != nullptr ? kQuantiseNs : 0)) + kRowNs;
  const RowChunks rows = chunk_rows(x.rows, ns, team_.n_threads());
  team_.append<Args>(rows.chunks(), {x, y, weight.data, epsilon, options_.isa, out.data, cells, &ops_, rows},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       const size_t cols = a.x.cols;
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         const size_t at = r * cols;
                         a.ops->norm(a.x.data + at, a.y == nullptr ? nullptr : a.y + at, a.weight, a.x.cols, a.epsilon,
                                     a.out + at);
                         if (a.cells != nullptr) quantise_rows(a.isa, a.out + at, cols, a.x.cols, r, r + 1, a.cells);
                       }
                     });
}

void CpuDevice::norm(device::Queue&, device::Tensor x, device::Vector weight, float epsilon, device::Tensor out) {
  append_norm(x, nullptr, weight, epsilon, out);
}

void CpuDevice::add_norm(device::Queue&, device::Tensor x, device::Tensor y, device::Vector weight, float epsilon,
                         device::Tensor out) {
  HEDDLE_CHECK(x.rows == y.rows && x.cols == y.cols);
  append_norm(x, y.data, weight, epsilon, out);
}

void CpuDevice::norm_add(device::Queue&, device::Tensor y, device::Vector weight, float epsilon, device::Tensor x) {
  flush();
  HEDDLE_CHECK_OP(x.cols, ==, weight.size);
  HEDDLE_CHECK(x.rows == y.rows && x.cols == y.cols);
  overwritten(x);
  if (x.rows == 0) return;
  struct Args {
    device::Tensor x;
    const float* y;
    const float* weight;
    float epsilon;
    const OpKernels* ops;
    RowChunks rows;
  };
  const RowChunks rows = chunk_rows(x.rows, slow() * kNormNs * x.cols + kRowNs, team_.n_threads());
  team_.append<Args>(rows.chunks(), {x, y.data, weight.data, epsilon, &ops_, rows},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         const size_t at = size_t{r} * a.x.cols;
                         a.ops->norm_add(a.y + at, a.weight, a.x.cols, a.epsilon, a.x.data + at);
                       }
                     });
}

void CpuDevice::add(device::Queue&, device::Tensor x, device::Tensor y) {
  flush();
  HEDDLE_CHECK(x.rows == y.rows && x.cols == y.cols);
  overwritten(x);
  if (x.rows == 0) return;
  struct Args {
    device::Tensor x;
    const float* y;
    const OpKernels* ops;
    RowChunks rows;
  };
  const RowChunks rows = chunk_rows(x.rows, slow() * kMoveNs * x.cols + 1, team_.n_threads());
  team_.append<Args>(rows.chunks(), {x, y.data, &ops_, rows}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t first = size_t{a.rows.first(chunk)} * a.x.cols, last = size_t{a.rows.last(chunk)} * a.x.cols;
    a.ops->add(a.x.data + first, a.y + first, last - first);
  });
}

void CpuDevice::gather_rows(device::Queue&, device::Tensor in, std::span<const uint32_t> rows, device::Tensor out) {
  flush();
  HEDDLE_CHECK_OP(out.rows, ==, rows.size());
  HEDDLE_CHECK_OP(in.cols, ==, out.cols);
  overwritten(out);
  if (out.rows == 0) return;
  struct Args {
    const float* in;
    const uint32_t* from;
    device::Tensor out;
    RowChunks rows;
  };
  const RowChunks grid = chunk_rows(out.rows, kMoveNs * out.cols + kRowNs, team_.n_threads());
  team_.append<Args>(grid.chunks(), {in.data, rows.data(), out, grid}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t cols = a.out.cols;
    for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r)
      std::memcpy(a.out.data + r * cols, a.in + a.from[r] * cols, cols * sizeof(float));
  });
}

void CpuDevice::copy_to_host(device::Queue&, device::Tensor from, float* to) {
  flush();
  if (from.rows == 0) return;
  struct Args {
    device::Tensor from;
    float* to;
    RowChunks rows;
  };
  const RowChunks rows = chunk_rows(from.rows, kMoveNs * from.cols + 1, team_.n_threads());
  team_.append<Args>(rows.chunks(), {from, to, rows}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t first = size_t{a.rows.first(chunk)} * a.from.cols, last = size_t{a.rows.last(chunk)} * a.from.cols;
    std::memcpy(a.to + first, a.from.data + first, (last - first) * sizeof(float));
  });
}

}  // namespace heddle::cpu
