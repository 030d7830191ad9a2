#pragma once
// Canonical quantised groups: the few forms that all block formats reduce to without requantisation. A row becomes one
// integer code a weight, and per group of 16 or 32 weights a float scale d and, for types with `has_min`, an offset m:
//     w = d * q + m        computed in float32 as one multiplication, then one addition
// Which equals dequantize_row
//   - bit for bit, for every type but Q4_0;
//   - for Q4_0 (d * (q - 8) there, d * q + (-8 d) here) in value, for every finite d: both are exact; only the sign of
//   a
//     zero can differ (q = 8 and d < 0). An infinite or NaN scale gives NaN here where it may give infinity there.
// F32, F16 and BF16 are kept as they are. Packing kernels read this; pure; any thread; never fails.
#include <cstddef>
#include <cstdint>

#include "device/quant.h"

namespace heddle::device {

enum class CanonicalKind : uint8_t {
  u4_group32,  // codes 0 ... 15, with offset:     Q4_0, Q4_1, Q4_K
  s8_group32,  // codes -128 ... 127:              Q8_0, Q5_0 (-16 ... 15); with offset Q5_1, Q5_K (0 ... 31)
  s8_group16,  // codes -32 ... 31:                Q6_K, Q3_K (-4 ... 3); with offset Q2_K (0 ... 3)
  f32,
  f16,
  bf16,
};

struct CanonicalLayout {
  CanonicalKind kind;
  uint32_t group;  // weights that share a scale; 0 for the float kinds
  bool has_min;    // w = d*q + m; else w = d*q and no offsets are written
  int8_t code_min;
  int8_t code_max;
};

CanonicalLayout canonical_layout(QuantType type);

// Where the groups of one row of k weights go.
struct CanonicalGroups {
  int8_t* codes;  // [k], one byte a weight, also for u4
  float* scales;  // [k / group]
  float* mins;    // [k / group]; may be null when the type has no offset
};

// One row of `k` weights; `type` is not a float type and `k` is a multiple of the format's block.
void canonical_row(QuantType type, const std::byte* row, uint32_t k, CanonicalGroups out);

}  // namespace heddle::device
