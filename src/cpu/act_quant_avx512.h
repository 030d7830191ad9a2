#pragma once
// Activation quantisation for AVX-512: one cell at a time in two registers. Included by act_quant_isa.cpp alone.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

void quantise_cell(const float* x, ActCell& cell) {
  const __m512 zero = _mm512_setzero_ps(), largest_float = _mm512_set1_ps(0x1.fffffep127f);
  const __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(v[0], v[1]), zero));
  const float bottom = _mm512_reduce_min_ps(_mm512_min_ps(_mm512_min_ps(v[0], v[1]), zero));
  const bool finite = _kortestz_mask16_u8(_mm512_cmp_ps_mask(_mm512_abs_ps(v[0]), largest_float, _CMP_NLE_UQ),
                                          _mm512_cmp_ps_mask(_mm512_abs_ps(v[1]), largest_float, _CMP_NLE_UQ)) != 0;
  const float span = top - bottom;
  if (!(finite && span >= 0x1p-100f && span <= 0x1.fffffep127f)) {
    const bool is_zero = finite && span < 0x1p-100f;
    __builtin_memset(&cell, 0, sizeof cell);
    cell.scale = is_zero ? 0.0f : __builtin_nanf("");
    cell.sum = cell.scale;
    return;
  }
  const float scale = span * (1.0f / 255.0f);
  const __m512 inverse = _mm512_set1_ps(1.0f / scale);
  // 1.5 * 2^23: added to |v| < 2^22 it rounds v to an integer, nearest even, which then stands in the low bits.
  const __m512 round = _mm512_set1_ps(12582912.0f);
  const __m512i round_bits = _mm512_set1_epi32(0x4b400000);
  const __m512i smallest =
      _mm512_sub_epi32(_mm512_castps_si512(_mm512_fmadd_ps(_mm512_set1_ps(bottom), inverse, round)), round_bits);
  const __m512i top_code = _mm512_add_epi32(smallest, _mm512_set1_epi32(255));
  const __m512i offset = _mm512_add_epi32(smallest, _mm512_set1_epi32(128));
  int32_t half_sum[2];
  for (int i = 0; i < 2; ++i) {
    __m512i q = _mm512_sub_epi32(_mm512_castps_si512(_mm512_fmadd_ps(v[i], inverse, round)), round_bits);
    q = _mm512_min_epi32(q, top_code);  // two ties can make the span 256
    half_sum[i] = _mm512_reduce_add_epi32(q);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(cell.codes + 16 * i),
                     _mm512_cvtepi32_epi8(_mm512_sub_epi32(q, offset)));
  }
  const int32_t sum = half_sum[0] + half_sum[1];
  cell.scale = scale;
  cell.sum = scale * static_cast<float>(sum);
  cell.neg_sum = static_cast<int16_t>(-sum);
  cell.offset = static_cast<int16_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(offset)));
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
