#pragma once
// Activation rows -> cells (act_cell.h). Called by whoever produces the input of a linear layer, row by row or in
// ranges; ranges that do not overlap may run on several threads. The buffer belongs to the caller (64-byte aligned).
// Never fails.
#include <cstddef>
#include <cstdint>

#include "cpu/act_cell.h"
#include "cpu/isa.h"

namespace heddle::cpu {

// Size of the cells of [rows, cols]; cols is a multiple of 32.
constexpr size_t act_bytes(uint32_t rows, uint32_t cols) {
  return static_cast<size_t>((rows + kTileRows - 1) / kTileRows) * kTileRows * (cols / kCellValues) * sizeof(ActCell);
}

// Index of the cell (row, group) in the buffer.
constexpr size_t act_index(uint32_t row, uint32_t group, uint32_t n_groups) {
  return (static_cast<size_t>(row / kTileRows) * n_groups + group) * kTileRows + row % kTileRows;
}

// Quantises rows [first, last) of the tensor. x points at row `first`, rows lie ldx floats apart. Rows outside the
// range are left alone.
void quantise_rows(Isa isa, const float* x, size_t ldx, uint32_t cols, uint32_t first, uint32_t last, ActCell* cells);

// Second term of rows [first, last): the cells of x - s * v, what `first_term`, the cells of the whole tensor, leaves
// over. The two terms together hold some 16 bits of a value. scratch: [cols].
void quantise_rest(Isa isa, const float* x, size_t ldx, uint32_t cols, uint32_t first, uint32_t last,
                   const ActCell* first_term, float* scratch, ActCell* cells);

}  // namespace heddle::cpu
