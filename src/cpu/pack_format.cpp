#include "cpu/pack_format.h"

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::cpu {

using device::QuantType;

PackFormat pack_format(QuantType type, device::Compute compute) {
  constexpr PackFormat kFloats{Codes::f32, false, false, 0, 0, 1};
  if (compute == device::Compute::f32) return kFloats;
  switch (type) {  // codes, k_format, has_min, group, zero, super
    case QuantType::f32:
      return kFloats;
    case QuantType::f16:
      return {Codes::f16, false, false, 0, 0, 1};
    case QuantType::bf16:
      return {Codes::bf16, false, false, 0, 0, 1};
    case QuantType::q4_0:
      return {Codes::u4, false, false, 32, 8, 1};
    case QuantType::q4_1:
      return {Codes::u4, false, true, 32, 0, 1};
    case QuantType::q5_0:
      return {Codes::u5, false, false, 32, 16, 1};
    case QuantType::q5_1:
      return {Codes::u5, false, true, 32, 0, 1};
    case QuantType::q8_0:
      return {Codes::u8, false, false, 32, 128, 1};
    case QuantType::q2_k:
      return {Codes::u4, true, true, 16, 0, 8};
    case QuantType::q3_k:
      return {Codes::u4, true, false, 16, 4, 8};
    case QuantType::q4_k:
      return {Codes::u4, true, true, 32, 0, 8};
    case QuantType::q5_k:
      return {Codes::u5, true, true, 32, 0, 8};
    case QuantType::q6_k:
      return {Codes::u6, true, false, 16, 32, 8};
  }
  check_failed(__FILE__, __LINE__, "type", fmt::format("no QuantType {}", static_cast<int>(type)));
}

PackSizes pack_sizes(PackFormat format, uint32_t cols) {
  if (is_float(format.codes)) {
    return {.panel = size_t{cols} * kPanelRows * (format.codes == Codes::f32 ? 4 : 2)};
  }
  const size_t halves = kPanelRows * 2 * (format.has_min ? 2 : 1);
  const size_t bytes = kPanelRows * (32u / format.group) * (format.has_min ? 2 : 1);
  PackSizes sizes;
  sizes.super_scales = format.k_format ? halves : 0;
  sizes.codes = format.codes == Codes::u8 ? 512 : 256;
  sizes.planes = format.codes == Codes::u5 ? 64 : format.codes == Codes::u6 ? 128 : 0;
  sizes.scales = format.k_format ? bytes : halves;
  const size_t n_groups = cols / 32;
  sizes.panel = n_groups / format.super * sizes.super_scales + n_groups * (sizes.codes + sizes.planes + sizes.scales);
  return sizes;
}

size_t packed_bytes(QuantType type, uint32_t rows, uint32_t cols, device::Compute compute) {
  return size_t{(rows + kPanelRows - 1) / kPanelRows} * pack_sizes(pack_format(type, compute), cols).panel;
}

}  // namespace heddle::cpu
