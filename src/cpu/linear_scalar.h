#pragma once
// The reference: linear.h's arithmetic in the plainest form, one output element at a time. Also what runs on machines
// without AVX2. Included by linear_isa.cpp alone.
#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

inline float half_to_float(const uint8_t* at) {
  uint16_t half;
  __builtin_memcpy(&half, at, 2);
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = (magnitude << 13) + ((127u - 15u) << 23);
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN made quiet
    bits = 0x7f800000u | (magnitude << 13) | (magnitude > 0x7c00u ? 0x00400000u : 0u);
  } else if (magnitude < 0x400u) {
    const float denormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    __builtin_memcpy(&bits, &denormal, 4);
  }
  bits |= sign;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

inline float bfloat_to_float(const uint8_t* at) {
  uint16_t half;
  __builtin_memcpy(&half, at, 2);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// Code of `column` (of 32) of row r; codes points at the group.
inline int32_t code_at(Codes kind, const uint8_t* codes, uint32_t r, uint32_t column) {
  const uint32_t j = column / 4, byte = 4 * r + column % 4;
  if (kind == Codes::u8) return codes[64 * j + byte];
  const uint32_t pair = codes[64 * (j % 4) + byte];
  uint32_t q = j < 4 ? pair & 15u : pair >> 4;
  if (kind != Codes::u4) q |= (codes[256 + byte] >> j & 1u) << 4;
  if (kind == Codes::u6) q |= (codes[320 + byte] >> j & 1u) << 5;
  return static_cast<int32_t>(q);
}

// cell: the row's cell of group 0; the next group's is kTileRows further.
float dot_cells(const LinearRun& run, const uint8_t* p, uint32_t r, const ActCell* cell) {
  const PackFormat f = run.format;
  const uint32_t codes_bytes = f.codes == Codes::u8   ? 512
                               : f.codes == Codes::u4 ? 256
                               : f.codes == Codes::u5 ? 320
                                                      : 384;
  const uint32_t halves = 32u / f.group;
  float acc = 0.0f;
  for (uint32_t g = 0; g < run.cols / 32; g += f.super) {
    float d_super = 0.0f, min_super = 0.0f;
    if (f.k_format) {
      d_super = half_to_float(p + 2 * r);
      p += 32;
      if (f.has_min) {
        min_super = half_to_float(p + 2 * r);
        p += 32;
      }
    }
    for (uint32_t i = 0; i < f.super; ++i, cell += kTileRows) {
      const uint8_t* scales = p + codes_bytes;
      int32_t mins_dot = 0;
      for (uint32_t h = 0; h < halves; ++h) {
        int32_t dot = 0;
        for (uint32_t c = h * f.group; c < (h + 1) * f.group; ++c) {
          dot += (code_at(f.codes, p, r, c) - f.zero) * (cell->codes[c] + cell->offset);
        }
        const float d = f.k_format ? d_super * static_cast<float>(static_cast<int8_t>(scales[16 * h + r]))
                                   : half_to_float(scales + 2 * r);
        acc = __builtin_fmaf(d * cell->scale, static_cast<float>(dot), acc);
        if (f.has_min && halves == 2) mins_dot += scales[32 + 16 * h + r] * -cell->neg_half_sum[h];
      }
      if (f.has_min) {
        if (halves == 2) {
          acc = __builtin_fmaf(-(min_super * cell->scale), static_cast<float>(mins_dot), acc);
        } else {
          const float m =
              f.k_format ? -(min_super * static_cast<float>(scales[16 + r])) : half_to_float(scales + 32 + 2 * r);
          acc = __builtin_fmaf(m, cell->sum, acc);
        }
      }
      p = scales + (f.k_format ? 16u * halves : 32u) * (f.has_min ? 2u : 1u);
    }
  }
  return acc;
}

float dot_floats(const LinearRun& run, const uint8_t* p, uint32_t r, const float* x) {
  float acc = 0.0f;
  for (size_t k = 0; k < run.cols; ++k) {
    float w;
    if (run.format.codes == Codes::f32) {
      __builtin_memcpy(&w, p + (16 * k + r) * 4, 4);
    } else {
      const uint8_t* at = p + (16 * k + r) * 2;
      w = run.format.codes == Codes::f16 ? half_to_float(at) : bfloat_to_float(at);
    }
    acc = __builtin_fmaf(x[k], w, acc);
  }
  return acc;
}

}  // namespace

void linear_run(const LinearRun& run) {
  const bool floats =
      run.format.codes == Codes::f32 || run.format.codes == Codes::f16 || run.format.codes == Codes::bf16;
  const size_t n_groups = run.cols / 32;
  for (uint32_t n = 0; n < run.n_columns; ++n) {
    const uint8_t* panel = run.panels + n / kPanelRows * run.panel_bytes;
    for (size_t row = run.first_row; row < run.last_row; ++row) {
      const size_t tile = row / kTileRows * n_groups * kTileRows + row % kTileRows;
      float v = floats ? dot_floats(run, panel, n % kPanelRows, run.x + row * run.ldx)
                       : dot_cells(run, panel, n % kPanelRows, run.cells + tile);
      if (run.bias != nullptr) v = v + run.bias[n];
      if (run.residual != nullptr) v = run.residual[row * run.ldr + n] + v;
      run.out[row * run.ldo + n] = v;
    }
  }
}

}  // namespace heddle::cpu::HEDDLE_ISA
