#pragma once
// The linear layer: out[m][n] = sum over k of x[m][k] * w[n][k], on packed weights, in canonical arithmetic. Per
// element, for quantised weights and groups g ascending, with integer dots that are exact in int32:
//     acc = fma(d_g * s_g, float(sum of (q - zero) * v), acc)      and with has_min then      acc = fma(m_g, A_g, acc)
// where s, v and A (= ActCell::sum) come from the cell of the row (act_cell.h). With groups of 16 and has_min (Q2_K)
// the second is acc = fma(-(dmin * s), float(min_0 * sum v_0 + min_1 * sum v_1), acc), once a cell. Float weights: acc
// = fma(x[k], w[k], acc), k ascending. Every instruction set, tile shape and split gives the same bits. Chunks that
// differ in panels or rows may run on different threads. Neither allocates nor fails.
#include <cstddef>
#include <cstdint>

#include "cpu/act_cell.h"
#include "cpu/isa.h"
#include "cpu/pack_linear.h"

namespace heddle::cpu {

struct LinearInput {
  const ActCell* cells = nullptr;  // of the whole tensor (act_quant.h); needed if the weights read cells
  const float* x = nullptr;        // [rows, cols], rows ldx floats apart; needed if the weights read floats
  size_t ldx = 0;
};

struct LinearOutput {
  float* out = nullptr;  // [rows, n], rows ldo floats apart
  size_t ldo = 0;
  const float* bias = nullptr;      // [n] or null: result + bias
  const float* residual = nullptr;  // like out, or null: residual + (result + bias); may be `out` itself
  size_t ldr = 0;
};

// Rows [first_row, last_row) of the output columns that panels [first_panel, last_panel) hold. Any split is right; a
// first_row that is a multiple of 16 and panel ranges of a few hundred KiB are fast.
void linear_tile(Isa isa, const PackedLinear& weights, uint32_t first_panel, uint32_t last_panel, uint32_t first_row,
                 uint32_t last_row, const LinearInput& in, const LinearOutput& out);

}  // namespace heddle::cpu
