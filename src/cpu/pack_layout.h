#pragma once
// How packed weights lie in memory: plain constants and structs, read by the packer and by the kernels of every
// instruction set. No inline functions, no other includes (see act_cell.h).
//
// A matrix [rows, cols] is cut into panels of 16 rows; lane r of every vector is row r of the panel. A panel is one
// contiguous stream. Quantised forms: per *super* of `super_groups` groups of 32 columns
//     [super scales: f16 d[16], then f16 dmin[16] if has_min]        only if super_groups == 8 (the K formats)
//     per group of 32 columns
//       codes   u4, u5: 4 x 64 B; byte 4 r + i of vector j holds column 4 j + i (low nibble) and 4 (j + 4) + i (high)
//               u8:     8 x 64 B; byte 4 r + i of vector j holds column 4 j + i
//       planes  u5: 64 B; byte 4 r + i, bit j is bit 4 of column 4 j + i
//       scales  super_groups == 1: f16 d[16], then f16 m[16] if has_min
//               super_groups == 8: per scale group (32 / group of them) i8 scale[16]; then the same of u8 min[16] if
//               has_min
// Codes are unsigned; the weight is w = d * (q - zero) without has_min, w = d * q + m with it. In the K formats
// d = super d * scale and m = -(super dmin * min), both exact in f32.
// Float forms (f32, f16, bf16): [cols][16].
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kPanelRows = 16;

enum class Codes : uint8_t { u4, u5, u8, f32, f16, bf16 };

struct PackFormat {
  Codes codes = Codes::f32;
  uint8_t zero = 0;          // subtracted from codes (no has_min)
  uint8_t group = 32;        // columns that share a scale: 32 or 16
  uint8_t super_groups = 1;  // groups of 32 columns under one super scale: 1, or 8 in the K formats
  bool has_min = false;
};

}  // namespace heddle::cpu
