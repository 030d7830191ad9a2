#include "cpu/linear.h"

#include <algorithm>

#include "base/check.h"
#include "cpu/linear_kernels.h"
#include "cpu/pack_format.h"

namespace heddle::cpu {

void linear_tile(Isa isa, const PackedLinear& weights, uint32_t first_panel, uint32_t last_panel, uint32_t first_row,
                 uint32_t last_row, const LinearInput& in, const LinearOutput& out) {
  HEDDLE_CHECK_OP(last_panel, <=, weights.n_panels());
  HEDDLE_CHECK(in.cells != nullptr || !weights.reads_cells());
  HEDDLE_CHECK(in.x != nullptr || !weights.reads_floats());
  for (const PackSegment& segment : weights.segments()) {
    const uint32_t first = std::max(first_panel, segment.first_panel);
    const uint32_t last = std::min(last_panel, segment.first_panel + segment.n_panels);
    if (first >= last) continue;
    const uint32_t column_in_segment = (first - segment.first_panel) * kPanelRows;
    const size_t column = segment.first_row + column_in_segment;
    const LinearRun run{
        .format = segment.format,
        .panels = reinterpret_cast<const uint8_t*>(weights.data()) + segment.offset +
                  (first - segment.first_panel) * segment.panel_bytes,
        .panel_bytes = segment.panel_bytes,
        .n_columns = std::min((last - first) * kPanelRows, segment.rows - column_in_segment),
        .cols = weights.cols(),
        .cells = in.cells,
        .x = in.x,
        .ldx = in.ldx,
        .first_row = first_row,
        .last_row = last_row,
        .out = out.out + column,
        .ldo = out.ldo,
        .bias = out.bias == nullptr ? nullptr : out.bias + column,
        .residual = out.residual == nullptr ? nullptr : out.residual + column,
        .ldr = out.ldr,
    };
    switch (isa) {
      case Isa::scalar:
        scalar::linear_run(run);
        break;
      case Isa::avx2:
        avx2::linear_run(run);
        break;
      case Isa::avx512:
        avx512::linear_run(run);
        break;
    }
  }
}

}  // namespace heddle::cpu
