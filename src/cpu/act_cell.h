#pragma once
// The quantised form of an activation row, as the linear kernels read it. A row of K values is K/32 cells. With
// s = (max(0, hi) - min(0, lo)) / 255 over the 32 values, v = round_to_even(x / s) is an integer in [-255, 255] whose
// span in the cell is at most 255; stored is v - offset, which fits 8 bits. So x ~ s * v, and the error is at most s
// / 2. A cell is a function of its 32 values alone (batch-invariance). Cells with a NaN or an infinity have scale and
// sum NaN, so that the fault reaches every output of the row and no other row. Cells whose span is under 2^-100 are
// zero.
//
// In memory rows are tiled by 16, so that a kernel's tile is contiguous: [rows/16][K/32][16] cells; the last tile is
// whole. This header is read by the per-instruction-set sources too, so it has no inline functions and includes nothing
// else.
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kCellValues = 32;
inline constexpr uint32_t kTileRows = 16;

struct ActCell {
  int8_t codes[kCellValues];  // v - offset
  float scale;                // s
  float sum;                  // s * float(sum of v)
  // The order lets two 16-bit neighbours be read as one operand: (neg_sum, offset), (offset, neg_half_sum[0]).
  int16_t neg_sum;          // -(sum of v)
  int16_t offset;           // smallest v + 128
  int16_t neg_half_sum[2];  // as neg_sum, of either half of 16
};
static_assert(sizeof(ActCell) == 48);

}  // namespace heddle::cpu
