// The ops of CpuDevice but for attention: each one or two commands, in chunks of rows.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cpu/act_quant.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_linear.h"
#include "cpu/grain.h"
#include "cpu/linear.h"

namespace heddle::cpu {
namespace {

// Nanoseconds a value with AVX-512, one thread.
constexpr double kNormNs = 0.15;
constexpr double kQuantiseNs = 0.25;
constexpr double kGatedNs = 0.5;
constexpr double kMoveNs = 0.15;
constexpr double kEmbedNs = 1.5;
constexpr double kRowNs = 30;

// Rows in chunks of `step`.
struct Rows {
  uint32_t n, step;
  uint32_t chunks() const { return (n + step - 1) / step; }
  uint32_t first(uint32_t chunk) const { return chunk * step; }
  uint32_t last(uint32_t chunk) const { return std::min(n, (chunk + 1) * step); }
};

Rows rows_of(uint32_t n, double ns_per_row, uint32_t n_threads) {
  return {n, std::max(rows_per_chunk(n, ns_per_row, n_threads), (n + Team::kMaxChunks - 1) / Team::kMaxChunks)};
}

}  // namespace

double CpuDevice::slow() const { return slowness(options_.isa); }

ActCell* CpuDevice::cells_to_write(const device::Tensor& t) {
  if (t.aux == nullptr) return nullptr;
  Companion& c = *companion(t);
  c.fresh = reads_cells_.load(std::memory_order_relaxed);
  return c.fresh ? c.cells : nullptr;
}

const ActCell* CpuDevice::quantised(const device::Tensor& t) {
  if (t.aux != nullptr && companion(t)->fresh) return companion(t)->cells;
  HEDDLE_CHECK_OP(t.cols % kCellValues, ==, 0u);
  ActCell* cells = nullptr;
  if (t.aux != nullptr) {
    cells = companion(t)->cells;
    companion(t)->fresh = true;
  } else {
    cells = reinterpret_cast<ActCell*>(memory_.take(act_bytes(t.rows, t.cols), team_.n_completed()));
  }
  struct Args {
    device::Tensor t;
    Rows rows;
    Isa isa;
    ActCell* cells;
  };
  const Rows rows = rows_of(t.rows, slow() * kQuantiseNs * t.cols + kRowNs, team_.n_threads());
  team_.append<Args>(rows.chunks(), {t, rows, options_.isa, cells}, [](const Args& a, uint32_t chunk, Worker&) {
    const uint32_t first = a.rows.first(chunk);
    quantise_rows(a.isa, a.t.data + size_t{first} * a.t.cols, a.t.cols, a.t.cols, first, a.rows.last(chunk), a.cells);
  });
  return cells;
}

void CpuDevice::embed(device::Queue&, const device::Linear& table, const device::Batch& batch, float scale,
                      device::Tensor out) {
  const PackedLinear& packed = static_cast<const CpuLinear&>(table).packed();
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
    Rows rows;
    float scale;
  };
  const Rows rows = rows_of(out.rows, kEmbedNs * out.cols + kRowNs, team_.n_threads());
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
    Rows rows;
  };
  const double ns = slow() * x.cols * (kNormNs + (cells != nullptr ? kQuantiseNs : 0)) + kRowNs;
  const Rows rows = rows_of(x.rows, ns, team_.n_threads());
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
    Rows rows;
  };
  const Rows rows = rows_of(x.rows, slow() * kNormNs * x.cols + kRowNs, team_.n_threads());
  team_.append<Args>(rows.chunks(), {x, y.data, weight.data, epsilon, &ops_, rows},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         const size_t at = size_t{r} * a.x.cols;
                         a.ops->norm_add(a.y + at, a.weight, a.x.cols, a.epsilon, a.x.data + at);
                       }
                     });
}

void CpuDevice::add(device::Queue&, device::Tensor x, device::Tensor y) {
  HEDDLE_CHECK(x.rows == y.rows && x.cols == y.cols);
  overwritten(x);
  if (x.rows == 0) return;
  struct Args {
    device::Tensor x;
    const float* y;
    const OpKernels* ops;
    Rows rows;
  };
  const Rows rows = rows_of(x.rows, slow() * kMoveNs * x.cols + 1, team_.n_threads());
  team_.append<Args>(rows.chunks(), {x, y.data, &ops_, rows}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t first = size_t{a.rows.first(chunk)} * a.x.cols, last = size_t{a.rows.last(chunk)} * a.x.cols;
    a.ops->add(a.x.data + first, a.y + first, last - first);
  });
}

namespace {

// How a linear layer is cut: panels of 16 columns by rows. Rows vary fastest, so that a panel range is read from memory
// once and then from the cache.
struct LinearGrid {
  uint32_t panel_step, panel_blocks;
  uint32_t row_step, row_blocks;
};

constexpr uint32_t kRowStep = 64;  // rows whose cells stay in the second-level cache beside a panel range
constexpr double kMacPerNs = 170;  // AVX-512 VNNI, one thread
constexpr double kFloatMacPerNs = 40;
constexpr double kWeightBytesPerNs = 22;  // from memory, one thread

LinearGrid linear_grid(const PackedLinear& w, uint32_t rows, uint32_t n_threads, Isa isa) {
  LinearGrid grid{};
  grid.row_step = rows <= 2 * kRowStep ? rows : kRowStep;
  grid.row_blocks = (rows + grid.row_step - 1) / grid.row_step;
  const double bytes = static_cast<double>(w.bytes()) / w.n_panels();
  const double macs = 16.0 * w.cols() * grid.row_step * slowness(isa);
  const double panel_ns = std::max(bytes / kWeightBytesPerNs, macs / (w.reads_floats() ? kFloatMacPerNs : kMacPerNs));
  const double wanted = chunk_cost(panel_ns * w.n_panels() * grid.row_blocks, n_threads);
  const double most = std::min<double>(w.n_panels(), std::max(1.0, wanted / panel_ns));
  // Nearly equal ranges: a short last one would leave a thread waiting.
  grid.panel_blocks = static_cast<uint32_t>((w.n_panels() + most - 1) / most);
  const uint32_t limit = std::max(1u, Team::kMaxChunks / grid.row_blocks);
  grid.panel_blocks = std::clamp(grid.panel_blocks, 1u, std::min(limit, w.n_panels()));
  grid.panel_step = (w.n_panels() + grid.panel_blocks - 1) / grid.panel_blocks;
  grid.panel_blocks = (w.n_panels() + grid.panel_step - 1) / grid.panel_step;
  return grid;
}

}  // namespace

void CpuDevice::linear(device::Queue&, const device::Linear& weights, device::Tensor in, device::Tensor out) {
  const auto& linear = static_cast<const CpuLinear&>(weights);
  const PackedLinear& packed = linear.packed();
  HEDDLE_CHECK_OP(in.cols, ==, packed.cols());
  HEDDLE_CHECK_OP(out.cols, ==, packed.rows());
  HEDDLE_CHECK_OP(in.rows, ==, out.rows);
  overwritten(out);
  if (in.rows == 0) return;
  struct Args {
    const PackedLinear* packed;
    LinearGrid grid;
    LinearInput in;
    LinearOutput out;
    uint32_t rows;
    Isa isa;
  };
  const ActCell* cells = packed.reads_cells() ? quantised(in) : nullptr;
  const LinearGrid grid = linear_grid(packed, in.rows, team_.n_threads(), options_.isa);
  const Args args{
      &packed, grid,        {cells, in.data, in.cols}, {.out = out.data, .ldo = out.cols, .bias = linear.bias()},
      in.rows, options_.isa};
  team_.append<Args>(grid.panel_blocks * grid.row_blocks, args, [](const Args& a, uint32_t chunk, Worker&) {
    const uint32_t panel = chunk / a.grid.row_blocks * a.grid.panel_step;
    const uint32_t row = chunk % a.grid.row_blocks * a.grid.row_step;
    linear_tile(a.isa, *a.packed, panel, std::min(panel + a.grid.panel_step, a.packed->n_panels()), row,
                std::min(row + a.grid.row_step, a.rows), a.in, a.out);
  });
}

void CpuDevice::gated(device::Queue&, device::Activation activation, device::Tensor gate_up, device::Tensor out) {
  HEDDLE_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  ActCell* cells = cells_to_write(out);
  if (out.rows == 0) return;
  struct Args {
    void (*gate)(const float*, const float*, uint32_t, float*);
    const float* gate_up;
    device::Tensor out;
    ActCell* cells;
    Isa isa;
    Rows rows;
  };
  const double ns = slow() * out.cols * (kGatedNs + (cells != nullptr ? kQuantiseNs : 0)) + kRowNs;
  const Rows rows = rows_of(out.rows, ns, team_.n_threads());
  const auto gate = activation == device::Activation::silu ? ops_.silu : ops_.gelu_tanh;
  team_.append<Args>(rows.chunks(), {gate, gate_up.data, out, cells, options_.isa, rows},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       const size_t n = a.out.cols;
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         const float* in = a.gate_up + r * 2 * n;
                         float* out = a.out.data + r * n;
                         a.gate(in, in + n, a.out.cols, out);
                         if (a.cells != nullptr) quantise_rows(a.isa, out, n, a.out.cols, r, r + 1, a.cells);
                       }
                     });
}

void CpuDevice::gather_rows(device::Queue&, device::Tensor in, std::span<const uint32_t> rows, device::Tensor out) {
  HEDDLE_CHECK_OP(out.rows, ==, rows.size());
  HEDDLE_CHECK_OP(in.cols, ==, out.cols);
  overwritten(out);
  if (out.rows == 0) return;
  struct Args {
    const float* in;
    const uint32_t* from;
    device::Tensor out;
    Rows rows;
  };
  const Rows grid = rows_of(out.rows, kMoveNs * out.cols + kRowNs, team_.n_threads());
  team_.append<Args>(grid.chunks(), {in.data, rows.data(), out, grid}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t cols = a.out.cols;
    for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r)
      std::memcpy(a.out.data + r * cols, a.in + a.from[r] * cols, cols * sizeof(float));
  });
}

void CpuDevice::copy_to_host(device::Queue&, device::Tensor from, float* to) {
  if (from.rows == 0) return;
  struct Args {
    device::Tensor from;
    float* to;
    Rows rows;
  };
  const Rows rows = rows_of(from.rows, kMoveNs * from.cols + 1, team_.n_threads());
  team_.append<Args>(rows.chunks(), {from, to, rows}, [](const Args& a, uint32_t chunk, Worker&) {
    const size_t first = size_t{a.rows.first(chunk)} * a.from.cols, last = size_t{a.rows.last(chunk)} * a.from.cols;
    std::memcpy(a.to + first, a.from.data + first, (last - first) * sizeof(float));
  });
}

}  // namespace heddle::cpu
