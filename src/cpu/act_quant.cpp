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

}  // namespace heddle::cpu
