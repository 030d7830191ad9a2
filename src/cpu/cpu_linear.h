#pragma once
// A Linear on the CPU: packed weights and bias. Made by CpuDevice::make_linear, owned by the model; its bytes lie in
// the device's weight memory, so the device outlives it. Immutable; any thread.
#include "base/check.h"
#include "cpu/pack_linear.h"
#include "device/device.h"

namespace heddle::cpu {

class CpuLinear final : public device::Linear {
 public:
  CpuLinear(PackedLinear packed, device::Vector bias, bool fine)
      : packed_(std::move(packed)), bias_(bias), two_terms_(fine && packed_.reads_cells()) {
    HEDDLE_CHECK(bias.size == 0 || bias.size == packed_.rows());
  }
  uint32_t in_features() const override { return packed_.cols(); }
  uint32_t out_features() const override { return packed_.rows(); }
  size_t bytes() const override { return packed_.bytes(); }

  const PackedLinear& packed() const { return packed_; }
  // The input is quantised in two terms: cells, and cells of what those left over.
  bool two_terms() const { return two_terms_; }
  const float* bias() const { return bias_.size == 0 ? nullptr : bias_.data; }

 private:
  PackedLinear packed_;
  device::Vector bias_;
  bool two_terms_;
};

}  // namespace heddle::cpu
