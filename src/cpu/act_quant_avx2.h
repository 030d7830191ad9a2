#pragma once
// Activation quantisation for AVX2: one cell at a time in four registers. Included by act_quant_isa.cpp alone.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

inline float largest(__m256 v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

inline int32_t sum_of(__m256i v) {
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

void quantise_cell(const float* x, ActCell& cell) {
  const __m256 largest_float = _mm256_set1_ps(0x1.fffffep127f),
               magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4];
  __m256 high = _mm256_setzero_ps(), low = high;  // low is that of -x
  __m256 fault = high;
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    high = _mm256_max_ps(high, v[i]);
    low = _mm256_min_ps(low, v[i]);
    fault = _mm256_or_ps(fault, _mm256_cmp_ps(_mm256_and_ps(v[i], magnitude), largest_float, _CMP_NLE_UQ));
  }
  const float top = largest(high), bottom = -largest(_mm256_sub_ps(_mm256_setzero_ps(), low));
  const float span = top - bottom;
  const bool finite = _mm256_movemask_ps(fault) == 0;
  if (!(finite && span >= 0x1p-100f && span <= 0x1.fffffep127f)) {
    const bool zero = finite && span < 0x1p-100f;
    __builtin_memset(&cell, 0, sizeof cell);
    cell.scale = zero ? 0.0f : __builtin_nanf("");
    cell.sum = cell.scale;
    return;
  }
  const float scale = span * (1.0f / 255.0f);
  const __m256 inverse = _mm256_set1_ps(1.0f / scale);
  // 1.5 * 2^23: added to |v| < 2^22 it rounds v to an integer, nearest even, which then stands in the low bits.
  const __m256 round = _mm256_set1_ps(12582912.0f);
  const __m256i round_bits = _mm256_set1_epi32(0x4b400000);
  const __m256i smallest =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_fmadd_ps(_mm256_set1_ps(bottom), inverse, round)), round_bits);
  const __m256i top_code = _mm256_add_epi32(smallest, _mm256_set1_epi32(255));
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_sub_epi32(_mm256_castps_si256(_mm256_fmadd_ps(v[i], inverse, round)), round_bits);
    q[i] = _mm256_min_epi32(q[i], top_code);  // two ties can make the span 256
  }
  const int32_t half_sum[2] = {sum_of(_mm256_add_epi32(q[0], q[1])), sum_of(_mm256_add_epi32(q[2], q[3]))};
  const int32_t sum = half_sum[0] + half_sum[1];
  const __m256i offset = _mm256_add_epi32(smallest, _mm256_set1_epi32(128));
  for (__m256i& code : q) code = _mm256_sub_epi32(code, offset);
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));  // dwords 0 2 4 6 1 3 5 7
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(cell.codes),
                      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  cell.scale = scale;
  cell.sum = scale * static_cast<float>(sum);
  cell.neg_sum = static_cast<int16_t>(-sum);
  cell.offset = static_cast<int16_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(offset)));
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
