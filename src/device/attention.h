#pragma once
// What an attention layer is, apart from the batch: shapes, window, rotary table, and the layout of its KV cache.
#include <cstdint>
#include <vector>

#include "device/tensor.h"

namespace heddle::device {

// KV cache of one layer. The physical layout belongs to the device.
struct KvSpec {
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;  // sliding window in positions, 0 = all
};

// Rotary embedding over half-split pairs (i, i + head_dim/2): angle = position * base^(-2i/head_dim) / factor[i].
// Loading brings interleaved layouts to this one.
struct RopeSpec {
  float base = 10000.0f;
  float position_scale = 1.0f;  // linear scaling: position * position_scale
  std::vector<float> factors;   // empty, or [head_dim/2] divisors of the frequencies (Llama 3 scaling)
  bool operator==(const RopeSpec&) const = default;
};

struct AttentionSpec {
  uint32_t layer = 0;  // index into the KV cache's layers
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  float scale = 0.0f;       // of q·k
  uint32_t window = 0;      // a row at position p sees (p - window, p]; 0 = all of [0, p]
  uint32_t rope_table = 0;  // handle from Device::rope_table
  Vector q_norm, k_norm;    // per-head RMS norm scales [head_dim] before rotation, or empty
  float norm_epsilon = 0.0f;
};

}  // namespace heddle::device
