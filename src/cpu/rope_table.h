#pragma once
// Cosines and sines of rotary positions, by absolute position, computed in double and stored as f32: a rotation is a
// function of the position alone (batch-invariance). Owner: the device; made at load, then read by any thread.
#include <cstdint>
#include <vector>

#include "device/attention.h"

namespace heddle::cpu {

class RopeTable {
 public:
  RopeTable(const device::RopeSpec& spec, uint32_t head_dim, uint32_t n_positions);

  bool serves(const device::RopeSpec& spec, uint32_t head_dim) const { return head_dim_ == head_dim && spec_ == spec; }
  uint32_t n_positions() const { return n_positions_; }
  // [head_dim / 2] cosines, then as many sines.
  const float* row(uint32_t position) const { return values_.data() + size_t{position} * head_dim_; }

 private:
  device::RopeSpec spec_;
  uint32_t head_dim_;
  uint32_t n_positions_;
  std::vector<float> values_;  // [n_positions, head_dim]
};

}  // namespace heddle::cpu
