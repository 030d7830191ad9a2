#pragma once
// Quantises a part of a tensor's columns, for ops whose chunks are parts of rows. Any thread; parts do not overlap.
#include <algorithm>

#include "cpu/act_quant.h"

namespace heddle::cpu {

// Rows [first_row, last_row) and columns [first_col, last_col), both multiples of 32, of x: [rows, cols].
inline void quantise_columns(Isa isa, const float* x, uint32_t cols, uint32_t first_row, uint32_t last_row,
                             uint32_t first_col, uint32_t last_col, ActCell* cells) {
  // A tile of 16 rows at a time: there, the cells of a column range lie together as if it were a tensor of its own.
  for (uint32_t row = first_row; row < last_row;) {
    const uint32_t in_tile = row % kTileRows;
    const uint32_t n = std::min(last_row - row, kTileRows - in_tile);
    quantise_rows(isa, x + size_t{row} * cols + first_col, cols, last_col - first_col, in_tile, in_tile + n,
                  cells + act_index(row - in_tile, first_col / kCellValues, cols / kCellValues));
    row += n;
  }
}

}  // namespace heddle::cpu
