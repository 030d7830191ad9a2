#pragma once
// One panel: 16 rows as a file holds them -> packed bytes (pack_layout.h), and one row of it back as f32. Pure; any
// thread; the sizes were checked by PackedLinear::plan.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/pack_layout.h"
#include "device/quant.h"

namespace heddle::cpu {

// Working memory of one packing thread, kept between panels.
struct PackScratch {
  std::vector<int8_t> codes;  // [16, cols]
  std::vector<float> floats;  // [16, cols] for float forms, [cols / 16] x 2 else
};

// rows: up to 16 rows of `type`, `cols` weights each; missing ones become zeros. out is zero-filled.
void pack_panel(PackFormat format, device::QuantType type, std::span<const std::byte* const> rows, uint32_t cols,
                PackScratch& scratch, std::byte* out);

// Row r of the panel. out: [cols].
void unpack_row(PackFormat format, const std::byte* panel, uint32_t r, uint32_t cols, float* out);

}  // namespace heddle::cpu
