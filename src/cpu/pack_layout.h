#pragma once
// How packed weights lie in memory: plain constants and structs, read by the packer and by the kernels of every
// instruction set. No inline functions, no other includes (see act_cell.h).
//
// A matrix [rows, cols] is cut into panels of 16 rows; lane r of every vector is row r of the panel. A panel is one
// contiguous stream of parts:
//     super scales   f16 d[16], then f16 dmin[16] if has_min; only in the K formats (supers of 8 groups of 32 columns)
//     per group of 32 columns
//       codes        u4, u5, u6: 4 vectors of 64 B; byte 4 r + i of vector j holds column 4 j + i (low nibble) and
//       column
//                    4 (j + 4) + i (high nibble); u8: 8 vectors, byte 4 r + i of vector j holds column 4 j + i
//       planes       u5: one, u6: two vectors; bit j of byte 4 r + i is bit 4 (second: bit 5) of column 4 j + i
//       scales       not K: f16 d[16], then f16 m[16] if has_min
//                    K: per scale group i8 scale[16]; then, if has_min, per scale group u8 min[16]
// Codes are unsigned: the weight is w = d * (q - zero), or w = d * q + m with has_min. In the K formats d is super d
// times scale, and m = -(super dmin times min), both exact in f32. Float forms (f32, f16, bf16) are [cols][16].
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kPanelRows = 16;

enum class Codes : uint8_t { u4, u5, u6, u8, f32, f16, bf16 };

struct PackFormat {
  Codes codes;
  bool k_format;  // two levels of scales
  bool has_min;
  uint8_t group;  // columns that share a scale: 32 or 16 (K formats only); 0 for floats
  uint8_t zero;   // subtracted from codes; 0 with has_min
  uint8_t super;  // groups of 32 columns under one super scale: 8, or 1 if not k_format
};

}  // namespace heddle::cpu
