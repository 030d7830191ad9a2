#pragma once
// The reference of activation quantisation. Included by act_quant_isa.cpp alone.
#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

// Added to |v| < 2^22 it rounds v to an integer, nearest even, which then stands in the low bits.
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
constexpr int32_t kRoundBits = 0x4b400000;
constexpr float kSmallestSpan = 0x1p-100f;

inline int32_t round_scaled(float x, float inverse) {
  const float shifted = __builtin_fmaf(x, inverse, kRound);
  int32_t bits;
  __builtin_memcpy(&bits, &shifted, 4);
  return bits - kRoundBits;
}

void quantise_cell(const float* x, ActCell& cell) {
  float low = 0.0f, high = 0.0f;
  bool finite = true;
  for (uint32_t i = 0; i < kCellValues; ++i) {
    finite = finite && __builtin_fabsf(x[i]) <= 0x1.fffffep127f;
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float span = high - low;
  if (!(finite && span >= kSmallestSpan && span <= 0x1.fffffep127f)) {
    const bool zero = finite && span < kSmallestSpan;
    __builtin_memset(&cell, 0, sizeof cell);
    cell.scale = zero ? 0.0f : __builtin_nanf("");
    cell.sum = cell.scale;
    return;
  }
  const float scale = span * (1.0f / 255.0f);
  const float inverse = 1.0f / scale;
  const int32_t smallest = round_scaled(low, inverse);
  int32_t half_sum[2] = {0, 0};
  for (uint32_t i = 0; i < kCellValues; ++i) {
    int32_t v = round_scaled(x[i], inverse);
    v = v > smallest + 255 ? smallest + 255 : v;  // two ties can make the span 256
    cell.codes[i] = static_cast<int8_t>(v - smallest - 128);
    half_sum[i / 16] += v;
  }
  const int32_t sum = half_sum[0] + half_sum[1];
  cell.scale = scale;
  cell.sum = scale * static_cast<float>(sum);
  cell.neg_sum = static_cast<int16_t>(-sum);
  cell.offset = static_cast<int16_t>(smallest + 128);
  cell.neg_half_sum[0] = static_cast<int16_t>(-half_sum[0]);
  cell.neg_half_sum[1] = static_cast<int16_t>(-half_sum[1]);
}

}  // namespace

void quantise_run(const QuantiseRun& run) {
  for (uint32_t row = run.first; row < run.last; ++row) {
    const float* x = run.x + static_cast<size_t>(row - run.first) * run.ldx;
    ActCell* cell = run.cells + static_cast<size_t>(row / kTileRows) * run.n_groups * kTileRows + row % kTileRows;
    for (uint32_t g = 0; g < run.n_groups; ++g, x += kCellValues, cell += kTileRows) quantise_cell(x, *cell);
  }
}

}  // namespace heddle::cpu::HEDDLE_ISA
