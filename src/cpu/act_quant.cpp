#include "cpu/act_quant.h"

#include "base/check.h"
#include "cpu/linear_kernels.h"

namespace heddle::cpu {

void quantise_rows(Isa isa, const float* x, size_t ldx, uint32_t cols, uint32_t first, uint32_t last, ActCell* cells) {
  HEDDLE_CHECK_OP(cols % kCellValues, ==, 0u);
  const QuantiseRun run{x, ldx, cols / kCellValues, first, last, cells};
  switch (isa) {
    case Isa::scalar:
      return scalar::quantise_run(run);
    case Isa::avx2:
      return avx2::quantise_run(run);
    case Isa::avx512:
      return avx512::quantise_run(run);
  }
}

void quantise_rest(Isa isa, const float* x, size_t ldx, uint32_t cols, uint32_t first, uint32_t last,
                   const ActCell* first_term, float* scratch, ActCell* cells) {
  const uint32_t n_groups = cols / kCellValues;
  for (uint32_t row = first; row < last; ++row, x += ldx) {
    for (uint32_t g = 0; g < n_groups; ++g) {
      const ActCell& cell = first_term[act_index(row, g, n_groups)];
      const float* in = x + g * kCellValues;
      float* out = scratch + g * kCellValues;
      for (uint32_t i = 0; i < kCellValues; ++i)
        out[i] = in[i] - cell.scale * static_cast<float>(cell.codes[i] + cell.offset);
    }
    quantise_rows(isa, scratch, cols, cols, row, row + 1, cells);
  }
}

}  // namespace heddle::cpu
