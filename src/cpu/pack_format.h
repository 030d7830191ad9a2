#pragma once
// Which packed form each storage type takes, and its sizes in bytes. Plain values; any thread; never fails.
#include <cstddef>
#include <cstdint>

#include "cpu/pack_layout.h"
#include "device/device.h"
#include "device/quant.h"

namespace heddle::cpu {

PackFormat pack_format(device::QuantType type, device::Compute compute);

constexpr bool is_float(Codes codes) { return codes == Codes::f32 || codes == Codes::f16 || codes == Codes::bf16; }

// Sizes of the parts that pack_layout.h lists, in bytes; float formats have none of the first four.
struct PackSizes {
  size_t super_scales = 0;
  size_t codes = 0;   // per group of 32 columns
  size_t planes = 0;  // per group
  size_t scales = 0;  // per group
  size_t panel = 0;
};
PackSizes pack_sizes(PackFormat format, uint32_t cols);

// What a matrix of one type takes when packed; for the memory plan.
size_t packed_bytes(device::QuantType type, uint32_t rows, uint32_t cols, device::Compute compute);

}  // namespace heddle::cpu
