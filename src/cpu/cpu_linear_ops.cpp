// Linear layers of CpuDevice, and the gated activation, which joins the linear layer before it: a linear layer is held
// back until the next op is known. If that is gated() on its output, each chunk computes the gate and the up columns of
// a tile, activates and quantises it while it is in the cache, and the wide tensor between them is never written.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "cpu/act_quant.h"
#include "cpu/cpu_device.h"
#include "cpu/cpu_linear.h"
#include "cpu/linear.h"
#include "cpu/quantise_columns.h"
#include "cpu/row_chunks.h"

namespace heddle::cpu {
namespace {

constexpr double kGatedNs = 0.5;  // a value, AVX-512, one thread; likewise:
constexpr double kMacPerNs = 170;
constexpr double kFloatMacPerNs = 40;
constexpr double kWeightBytesPerNs = 22;  // from memory
constexpr uint32_t kRowStep = 64;         // rows whose cells stay in the second-level cache beside a panel range
constexpr uint32_t kUnitPanels = kCellValues / kPanelRows;  // panels of a whole cell of outputs

// How a linear layer is cut: ranges of `units` (panels of 16 columns, or what gated() computes together) by rows. Rows
// vary fastest, so that a range is read from memory once and then from the cache.
struct LinearGrid {
  uint32_t n_units, unit_blocks;
  uint32_t n_rows, row_step, row_blocks;
  uint32_t chunks() const { return unit_blocks * row_blocks; }
  uint32_t first_unit(uint32_t chunk) const { return unit_at(chunk / row_blocks); }
  uint32_t last_unit(uint32_t chunk) const { return unit_at(chunk / row_blocks + 1); }
  uint32_t first_row(uint32_t chunk) const { return chunk % row_blocks * row_step; }
  uint32_t last_row(uint32_t chunk) const { return std::min(n_rows, first_row(chunk) + row_step); }

 private:
  uint32_t unit_at(uint32_t block) const { return static_cast<uint32_t>(uint64_t{n_units} * block / unit_blocks); }
};

// `least_blocks`: of units, where scratch bounds a chunk's width.
LinearGrid linear_grid(const PackedLinear& w, uint32_t n_units, uint32_t rows, uint32_t n_threads, Isa isa,
                       uint32_t least_blocks, uint32_t n_terms = 1) {
  LinearGrid grid{n_units, 1, rows, rows > 2 * kRowStep ? kRowStep : rows, 1};
  grid.row_blocks = (rows + grid.row_step - 1) / grid.row_step;
  const double bytes = static_cast<double>(w.bytes()) / n_units;
  const double macs = static_cast<double>(w.rows()) / n_units * w.cols() * grid.row_step * n_terms * slowness(isa);
  const double unit_ns = std::max(bytes / kWeightBytesPerNs, macs / (w.reads_floats() ? kFloatMacPerNs : kMacPerNs));
  const double total_ns = unit_ns * n_units * grid.row_blocks;
  auto blocks = static_cast<uint32_t>(unit_ns * n_units / chunk_cost(total_ns, n_threads));
  // As many for every thread: where chunks are few, an odd one would leave the others waiting.
  if (total_ns > kMinChunkNs) blocks = (blocks + n_threads - 1) / n_threads * n_threads;
  const uint32_t most = std::min(n_units, std::max(1u, Team::kMaxChunks / grid.row_blocks));
  grid.unit_blocks = std::clamp(std::max(blocks, least_blocks), 1u, most);
  return grid;
}

// A pointer p such that p[row * ld + column] is tile[0] for the tile's first row and column.
float* tile_origin(float* tile, size_t ld, uint32_t first_row, uint32_t first_column) {
  const auto at = reinterpret_cast<uintptr_t>(tile) - (first_row * ld + first_column) * sizeof(float);
  return reinterpret_cast<float*>(at);
}

}  // namespace

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
    RowChunks rows;
    Isa isa;
    ActCell* cells;
  };
  const RowChunks rows = chunk_rows(t.rows, slow() * kQuantiseNs * t.cols + kRowNs, team_.n_threads());
  team_.append<Args>(rows.chunks(), {t, rows, options_.isa, cells}, [](const Args& a, uint32_t chunk, Worker&) {
    const uint32_t first = a.rows.first(chunk);
    quantise_rows(a.isa, a.t.data + size_t{first} * a.t.cols, a.t.cols, a.t.cols, first, a.rows.last(chunk), a.cells);
  });
  return cells;
}

const ActCell* CpuDevice::quantised_rest(const device::Tensor& t, const ActCell* first_term) {
  auto* cells = reinterpret_cast<ActCell*>(memory_.take(act_bytes(t.rows, t.cols), team_.n_completed()));
  HEDDLE_CHECK_OP(team_.scratch_bytes(), >=, t.cols * sizeof(float));
  struct Args {
    device::Tensor t;
    RowChunks rows;
    Isa isa;
    const ActCell* first_term;
    ActCell* cells;
  };
  const RowChunks rows = chunk_rows(t.rows, slow() * 2 * kQuantiseNs * t.cols + kRowNs, team_.n_threads());
  team_.append<Args>(
      rows.chunks(), {t, rows, options_.isa, first_term, cells}, [](const Args& a, uint32_t chunk, Worker& worker) {
        const uint32_t first = a.rows.first(chunk);
        quantise_rest(a.isa, a.t.data + size_t{first} * a.t.cols, a.t.cols, a.t.cols, first, a.rows.last(chunk),
                      a.first_term, reinterpret_cast<float*>(worker.scratch), a.cells);
      });
  return cells;
}

void CpuDevice::linear(device::Queue&, const device::Linear& weights, device::Tensor in, device::Tensor out) {
  flush();
  const auto& linear = static_cast<const CpuLinear&>(weights);
  const PackedLinear& packed = linear.packed();
  HEDDLE_CHECK_OP(in.cols, ==, packed.cols());
  HEDDLE_CHECK_OP(out.cols, ==, packed.rows());
  HEDDLE_CHECK_OP(in.rows, ==, out.rows);
  overwritten(out);
  if (in.rows == 0) return;
  const ActCell* cells = packed.reads_cells() ? quantised(in) : nullptr;
  held_ = {&packed, {cells, in.data, in.cols}, {.out = out.data, .ldo = out.cols, .bias = linear.bias()}, in.rows};
  if (linear.two_terms()) held_.rest = quantised_rest(in, cells);
}

void CpuDevice::flush() {
  if (held_.packed == nullptr) return;
  struct Args {
    HeldLinear linear;
    LinearGrid grid;
    Isa isa;
  };
  const HeldLinear& h = held_;
  const LinearGrid grid = linear_grid(*h.packed, h.packed->n_panels(), h.rows, team_.n_threads(), options_.isa, 1,
                                      h.rest != nullptr ? 2 : 1);
  team_.append<Args>(grid.chunks(), {h, grid, options_.isa}, [](const Args& a, uint32_t chunk, Worker&) {
    const auto add = [&](const LinearInput& in, const LinearOutput& out) {
      linear_tile(a.isa, *a.linear.packed, a.grid.first_unit(chunk), a.grid.last_unit(chunk), a.grid.first_row(chunk),
                  a.grid.last_row(chunk), in, out);
    };
    add(a.linear.in, a.linear.out);
    if (a.linear.rest == nullptr) return;
    const LinearOutput& first = a.linear.out;
    add({.cells = a.linear.rest}, {.out = first.out, .ldo = first.ldo, .residual = first.out, .ldr = first.ldo});
  });
  held_ = {};
}

void CpuDevice::gated(device::Queue&, device::Activation activation, device::Tensor gate_up, device::Tensor out) {
  HEDDLE_CHECK(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols);
  const auto activate = activation == device::Activation::silu ? ops_.silu : ops_.gelu_tanh;
  const HeldLinear held = held_;
  const bool join = held.packed != nullptr && held.out.out == gate_up.data && held.rows == gate_up.rows &&
                    held.rest == nullptr && out.cols % kCellValues == 0 &&
                    held.packed->n_panels() == 2 * out.cols / kPanelRows;
  if (!join) flush();
  held_ = {};
  ActCell* cells = cells_to_write(out);
  if (out.rows == 0) return;
  if (!join) return append_gated(activate, gate_up, out, cells);

  struct Args {
    const PackedLinear* packed;
    LinearInput in;
    const float* bias;
    void (*activate)(const float*, const float*, uint32_t, float*);
    float* out;
    ActCell* cells;
    uint32_t cols;  // of out
    LinearGrid grid;
    Isa isa;
  };
  const uint32_t n_units = out.cols / kCellValues;
  const uint32_t row_step = std::min(out.rows, 2 * kRowStep);
  HEDDLE_CHECK_OP(team_.scratch_bytes(), >=, kGateScratch);
  const auto most_units = static_cast<uint32_t>(kGateScratch / (2 * row_step * kCellValues * sizeof(float)));
  const LinearGrid grid = linear_grid(*held.packed, n_units, out.rows, team_.n_threads(), options_.isa,
                                      (n_units + most_units - 1) / most_units);
  const Args args{held.packed, held.in, held.out.bias, activate, out.data, cells, out.cols, grid, options_.isa};
  team_.append<Args>(grid.chunks(), args, [](const Args& a, uint32_t chunk, Worker& worker) {
    const uint32_t first = a.grid.first_unit(chunk), last = a.grid.last_unit(chunk);
    const uint32_t first_row = a.grid.first_row(chunk), last_row = a.grid.last_row(chunk);
    const uint32_t first_col = first * kCellValues, width = (last - first) * kCellValues;
    auto* gate = reinterpret_cast<float*>(worker.scratch);
    float* up = gate + size_t{last_row - first_row} * width;
    const auto compute = [&](float* tile, uint32_t part) {
      const uint32_t panel = (part * a.cols + first_col) / kPanelRows;
      LinearOutput to{.out = tile_origin(tile, width, first_row, part * a.cols + first_col), .ldo = width};
      to.bias = a.bias;
      linear_tile(a.isa, *a.packed, panel, panel + (last - first) * kUnitPanels, first_row, last_row, a.in, to);
    };
    compute(gate, 0);
    compute(up, 1);
    for (uint32_t row = first_row; row < last_row; ++row) {
      const size_t at = size_t{row - first_row} * width;
      a.activate(gate + at, up + at, width, a.out + size_t{row} * a.cols + first_col);
    }
    if (a.cells != nullptr)
      quantise_columns(a.isa, a.out, a.cols, first_row, last_row, first_col, first_col + width, a.cells);
  });
}

void CpuDevice::append_gated(void (*activate)(const float*, const float*, uint32_t, float*), device::Tensor gate_up,
                             device::Tensor out, ActCell* cells) {
  struct Args {
    void (*activate)(const float*, const float*, uint32_t, float*);
    const float* gate_up;
    device::Tensor out;
    ActCell* cells;
    Isa isa;
    RowChunks rows;
  };
  const double ns = slow() * out.cols * (kGatedNs + (cells != nullptr ? kQuantiseNs : 0)) + kRowNs;
  const RowChunks rows = chunk_rows(out.rows, ns, team_.n_threads());
  team_.append<Args>(rows.chunks(), {activate, gate_up.data, out, cells, options_.isa, rows},
                     [](const Args& a, uint32_t chunk, Worker&) {
                       const size_t n = a.out.cols;
                       for (uint32_t r = a.rows.first(chunk); r < a.rows.last(chunk); ++r) {
                         const float* in = a.gate_up + r * 2 * n;
                         float* out = a.out.data + r * n;
                         a.activate(in, in + n, a.out.cols, out);
                         if (a.cells != nullptr) quantise_rows(a.isa, out, n, a.out.cols, r, r + 1, a.cells);
                       }
                     });
}

}  // namespace heddle::cpu
