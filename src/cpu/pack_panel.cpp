#include "cpu/pack_panel.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "cpu/pack_format.h"
#include "device/block_formats.h"
#include "device/canonical.h"
#include "device/dequantize.h"

namespace heddle::cpu {
namespace {

using device::QuantType;
namespace block = device::block;

constexpr uint32_t kLanes = kPanelRows;

template <class T>
T load(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Four canonical codes in a 32-bit word -> unsigned codes. Signed codes lie in [-zero, zero), zero a power of two, so
// adding zero is a flip of the sign bit; the file's own Q4_0 codes are unsigned already.
struct CodeMap {
  uint32_t keep, flip;
  uint32_t operator()(uint32_t word) const { return (word & keep) ^ flip; }
};

CodeMap code_map(PackFormat format, QuantType type) {
  if (format.zero == 0 || type == QuantType::q4_0) return {0xffffffffu, 0};
  return {(2u * format.zero - 1u) * 0x01010101u, format.zero * 0x01010101u};
}

// 32 columns of 16 rows, canonical codes `stride` apart, to codes and planes.
void pack_codes(PackFormat format, CodeMap map, const int8_t* codes, size_t stride, std::byte* out) {
  if (format.codes == Codes::u8) {
    for (uint32_t j = 0; j < 8; ++j) {
      for (uint32_t r = 0; r < kLanes; ++r)
        store(out + 64 * j + 4 * r, map(load<uint32_t>(codes + r * stride + 4 * j)));
    }
    return;
  }
  for (uint32_t j = 0; j < 4; ++j) {
    for (uint32_t r = 0; r < kLanes; ++r) {
      const uint32_t low = map(load<uint32_t>(codes + r * stride + 4 * j)) & 0x0f0f0f0fu;
      const uint32_t high = map(load<uint32_t>(codes + r * stride + 4 * j + 16)) & 0x0f0f0f0fu;
      store(out + 64 * j + 4 * r, low | (high << 4));
    }
  }
  if (format.codes == Codes::u4) return;
  for (uint32_t r = 0; r < kLanes; ++r) {
    uint32_t bit4 = 0, bit5 = 0;
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t word = map(load<uint32_t>(codes + r * stride + 4 * j));
      bit4 |= ((word >> 4) & 0x01010101u) << j;
      bit5 |= ((word >> 5) & 0x01010101u) << j;
    }
    store(out + 256 + 4 * r, bit4);
    if (format.codes == Codes::u6) store(out + 320 + 4 * r, bit5);
  }
}

// The scales of one block as the file has them: two f16 patterns, and for the K formats the integers under them.
struct BlockScales {
  uint16_t d = 0, min = 0;
  uint8_t scale[16] = {}, min_scale[16] = {};  // per scale group; scale holds the bits of an int8
};

BlockScales block_scales(QuantType type, const std::byte* at) {
  const auto* b = reinterpret_cast<const uint8_t*>(at);
  BlockScales s;
  switch (type) {
    case QuantType::f32:
    case QuantType::f16:
    case QuantType::bf16:
      break;
    case QuantType::q4_0:
      s.d = load<uint16_t>(b + block::Q4_0::kScale);
      return s;
    case QuantType::q4_1:
      s.d = load<uint16_t>(b + block::Q4_1::kScale);
      s.min = load<uint16_t>(b + block::Q4_1::kMin);
      return s;
    case QuantType::q5_0:
      s.d = load<uint16_t>(b + block::Q5_0::kScale);
      return s;
    case QuantType::q5_1:
      s.d = load<uint16_t>(b + block::Q5_1::kScale);
      s.min = load<uint16_t>(b + block::Q5_1::kMin);
      return s;
    case QuantType::q8_0:
      s.d = load<uint16_t>(b + block::Q8_0::kScale);
      return s;
    case QuantType::q2_k:
      s.d = load<uint16_t>(b + block::Q2_K::kScale);
      s.min = load<uint16_t>(b + block::Q2_K::kMin);
      for (size_t g = 0; g < 16; ++g) {
        s.scale[g] = b[block::Q2_K::kScales + g] & 15;
        s.min_scale[g] = b[block::Q2_K::kScales + g] >> 4;
      }
      return s;
    case QuantType::q3_k: {
      s.d = load<uint16_t>(b + block::Q3_K::kScale);
      int8_t scale[16];
      block::unpack_q3_scales(b + block::Q3_K::kScales, scale);
      std::memcpy(s.scale, scale, 16);
      return s;
    }
    case QuantType::q4_k:
    case QuantType::q5_k: {
      static_assert(block::Q4_K::kScale == block::Q5_K::kScale && block::Q4_K::kMin == block::Q5_K::kMin &&
                    block::Q4_K::kScales == block::Q5_K::kScales);
      s.d = load<uint16_t>(b + block::Q4_K::kScale);
      s.min = load<uint16_t>(b + block::Q4_K::kMin);
      const block::ScalesAndMins packed = block::unpack_scales_and_mins(b + block::Q4_K::kScales);
      std::memcpy(s.scale, packed.scale, 8);
      std::memcpy(s.min_scale, packed.min, 8);
      return s;
    }
    case QuantType::q6_k:
      s.d = load<uint16_t>(b + block::Q6_K::kScale);
      std::memcpy(s.scale, b + block::Q6_K::kScales, 16);
      return s;
  }
  check_failed(__FILE__, __LINE__, "type", std::string(device::quant_name(type)) + " is not a block format");
}

void pack_quantised(PackFormat format, QuantType type, std::span<const std::byte* const> rows, uint32_t cols,
                    PackScratch& scratch, std::byte* out) {
  const PackSizes sizes = pack_sizes(format, cols);
  const CodeMap map = code_map(format, type);
  const size_t block_bytes = device::quant_layout(type).block_bytes;
  scratch.codes.resize(size_t{kLanes} * cols);
  scratch.floats.resize(cols / 16 * 2);
  for (uint32_t r = 0; r < kLanes; ++r) {
    int8_t* codes = scratch.codes.data() + size_t{r} * cols;
    if (r < rows.size()) {
      device::canonical_row(type, rows[r], cols, {codes, scratch.floats.data(), scratch.floats.data() + cols / 16});
    } else {
      std::memset(codes, 0, cols);
    }
  }
  const uint32_t per_group = format.k_format ? 32u / format.group : 0;  // integer scales in a group of 32 columns
  for (uint32_t g = 0; g < cols / 32; g += format.super) {
    std::byte* scales = out;
    if (!format.k_format) scales += sizes.codes + sizes.planes;
    BlockScales of_row[kLanes];
    for (uint32_t r = 0; r < rows.size(); ++r) {
      of_row[r] = block_scales(type, rows[r] + g / format.super * block_bytes);
      store(scales + 2 * r, of_row[r].d);
      if (format.has_min) store(scales + 32 + 2 * r, of_row[r].min);
    }
    out += sizes.super_scales;
    for (uint32_t i = 0; i < format.super; ++i) {
      pack_codes(format, map, scratch.codes.data() + size_t{32} * (g + i), cols, out);
      std::byte* integers = out + sizes.codes + sizes.planes;
      for (uint32_t h = 0; h < per_group; ++h) {
        for (uint32_t r = 0; r < kLanes; ++r) {
          store(integers + 16 * h + r, of_row[r].scale[i * per_group + h]);
          if (format.has_min) store(integers + 16 * (per_group + h) + r, of_row[r].min_scale[i * per_group + h]);
        }
      }
      out += sizes.codes + sizes.planes + sizes.scales;
    }
  }
}

void pack_floats(PackFormat format, QuantType type, std::span<const std::byte* const> rows, uint32_t cols,
                 PackScratch& scratch, std::byte* out) {
  if (format.codes == Codes::f32) {
    scratch.floats.resize(size_t{kLanes} * cols);
    for (uint32_t r = 0; r < rows.size(); ++r) {
      device::dequantize_row(type, rows[r], cols, scratch.floats.data() + size_t{r} * cols);
    }
    for (size_t k = 0; k < cols; ++k) {
      for (uint32_t r = 0; r < rows.size(); ++r) {
        store(out + (k * kLanes + r) * 4, scratch.floats[size_t{r} * cols + k]);
      }
    }
    return;
  }
  for (size_t k = 0; k < cols; ++k) {
    for (uint32_t r = 0; r < rows.size(); ++r) store(out + (k * kLanes + r) * 2, load<uint16_t>(rows[r] + 2 * k));
  }
}

uint32_t code_at(PackFormat format, const std::byte* codes, uint32_t r, uint32_t column) {
  const uint32_t j = column / 4, i = column % 4;
  if (format.codes == Codes::u8) return std::to_integer<uint32_t>(codes[64 * j + 4 * r + i]);
  const auto byte = std::to_integer<uint32_t>(codes[64 * (j % 4) + 4 * r + i]);
  uint32_t q = j < 4 ? byte & 15u : byte >> 4;
  if (format.codes != Codes::u4) q |= (std::to_integer<uint32_t>(codes[256 + 4 * r + i]) >> j & 1u) << 4;
  if (format.codes == Codes::u6) q |= (std::to_integer<uint32_t>(codes[320 + 4 * r + i]) >> j & 1u) << 5;
  return q;
}

}  // namespace

void pack_panel(PackFormat format, QuantType type, std::span<const std::byte* const> rows, uint32_t cols,
                PackScratch& scratch, std::byte* out) {
  HEDDLE_CHECK_OP(rows.size(), <=, size_t{kLanes});
  if (is_float(format.codes)) {
    pack_floats(format, type, rows, cols, scratch, out);
  } else {
    pack_quantised(format, type, rows, cols, scratch, out);
  }
}

void unpack_row(PackFormat format, const std::byte* panel, uint32_t r, uint32_t cols, float* out) {
  switch (format.codes) {
    case Codes::f32:
      for (size_t k = 0; k < cols; ++k) out[k] = load<float>(panel + (k * kLanes + r) * 4);
      return;
    case Codes::f16:
      for (size_t k = 0; k < cols; ++k) out[k] = f16_to_f32(load<uint16_t>(panel + (k * kLanes + r) * 2));
      return;
    case Codes::bf16:
      for (size_t k = 0; k < cols; ++k) out[k] = bf16_to_f32(load<uint16_t>(panel + (k * kLanes + r) * 2));
      return;
    case Codes::u4:
    case Codes::u5:
    case Codes::u6:
    case Codes::u8:
      break;
  }
  const PackSizes sizes = pack_sizes(format, cols);
  const uint32_t per_group = 32u / format.group;
  const float zero = format.zero;
  for (uint32_t g = 0; g < cols / 32; g += format.super) {
    const std::byte* halves = format.k_format ? panel : panel + sizes.codes + sizes.planes;
    const float d = f16_to_f32(load<uint16_t>(halves + 2 * r));
    const float min = format.has_min ? f16_to_f32(load<uint16_t>(halves + 32 + 2 * r)) : 0.0f;
    panel += sizes.super_scales;
    for (uint32_t i = 0; i < format.super; ++i) {
      const std::byte* integers = panel + sizes.codes + sizes.planes;
      for (uint32_t h = 0; h < per_group; ++h) {
        float d_group = d, m_group = min;
        if (format.k_format) {
          d_group = d * static_cast<float>(load<int8_t>(integers + 16 * h + r));
          if (format.has_min) {
            m_group = -(min * static_cast<float>(load<uint8_t>(integers + 16 * (per_group + h) + r)));
          }
        }
        for (uint32_t c = h * format.group; c < (h + 1) * format.group; ++c) {
          const auto q = static_cast<float>(code_at(format, panel, r, c));
          *out++ = format.has_min ? d_group * q + m_group : d_group * (q - zero);
        }
      }
      panel += sizes.codes + sizes.planes + sizes.scales;
    }
  }
}

}  // namespace heddle::cpu
