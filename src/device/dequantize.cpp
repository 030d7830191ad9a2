#include "device/dequantize.h"

#include "base/check.h"
#include "device/block_formats.h"

namespace heddle::device {
namespace {

using block::half_at;

// Bit 4 of weight i from a 32-bit plane.
int high_bit(uint32_t plane, int i) { return static_cast<int>((plane >> i) & 1u) << 4; }

void q4_0(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q4_0::kScale);
  const uint8_t* q = b + block::Q4_0::kCodes;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((q[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((q[i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q4_1::kScale), m = half_at(b + block::Q4_1::kMin);
  const uint8_t* q = b + block::Q4_1::kCodes;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(q[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(q[i] >> 4) + m;
  }
}

void q5_0(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q5_0::kScale);
  const uint32_t high = block::load<uint32_t>(b + block::Q5_0::kHigh);
  const uint8_t* q = b + block::Q5_0::kCodes;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(((q[i] & 15) | high_bit(high, i)) - 16);
    out[i + 16] = d * static_cast<float>(((q[i] >> 4) | high_bit(high, i + 16)) - 16);
  }
}

void q5_1(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q5_1::kScale), m = half_at(b + block::Q5_1::kMin);
  const uint32_t high = block::load<uint32_t>(b + block::Q5_1::kHigh);
  const uint8_t* q = b + block::Q5_1::kCodes;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((q[i] & 15) | high_bit(high, i)) + m;
    out[i + 16] = d * static_cast<float>((q[i] >> 4) | high_bit(high, i + 16)) + m;
  }
}

void q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q8_0::kScale);
  const uint8_t* q = b + block::Q8_0::kCodes;
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(q[i]));
}

void q2_k(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q2_K::kScale), dmin = half_at(b + block::Q2_K::kMin);
  for (int g = 0; g < 16; ++g) {  // groups of 16: plane (g / 2) % 4 of half g / 8
    const uint8_t packed = b[block::Q2_K::kScales + static_cast<size_t>(g)];
    const float scale = d * static_cast<float>(packed & 15), min = dmin * static_cast<float>(packed >> 4);
    const uint8_t* q = b + block::Q2_K::kCodes + g / 8 * 32 + g % 2 * 16;
    const int shift = 2 * (g / 2 % 4);
    for (int i = 0; i < 16; ++i) out[g * 16 + i] = scale * static_cast<float>((q[i] >> shift) & 3) - min;
  }
}

void q3_k(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q3_K::kScale);
  int8_t scales[16];
  block::unpack_q3_scales(b + block::Q3_K::kScales, scales);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(scales[g]);
    const uint8_t* q = b + block::Q3_K::kCodes + g / 8 * 32 + g % 2 * 16;
    const uint8_t* high = b + block::Q3_K::kHigh + g % 2 * 16;
    const int shift = 2 * (g / 2 % 4), plane = g / 2;
    for (int i = 0; i < 16; ++i) {
      const int code = ((q[i] >> shift) & 3) - (((high[i] >> plane) & 1) != 0 ? 0 : 4);
      out[g * 16 + i] = scale * static_cast<float>(code);
    }
  }
}

void q4_k(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q4_K::kScale), dmin = half_at(b + block::Q4_K::kMin);
  const block::ScalesAndMins packed = block::unpack_scales_and_mins(b + block::Q4_K::kScales);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(packed.scale[g]), min = dmin * static_cast<float>(packed.min[g]);
    const uint8_t* q = b + block::Q4_K::kCodes + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) out[g * 32 + i] = scale * static_cast<float>((q[i] >> shift) & 15) - min;
  }
}

void q5_k(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q5_K::kScale), dmin = half_at(b + block::Q5_K::kMin);
  const block::ScalesAndMins packed = block::unpack_scales_and_mins(b + block::Q5_K::kScales);
  const uint8_t* high = b + block::Q5_K::kHigh;
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(packed.scale[g]), min = dmin * static_cast<float>(packed.min[g]);
    const uint8_t* q = b + block::Q5_K::kCodes + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = ((q[i] >> shift) & 15) | (((high[i] >> g) & 1) << 4);
      out[g * 32 + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void q6_k(const uint8_t* b, float* out) {
  const float d = half_at(b + block::Q6_K::kScale);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[block::Q6_K::kScales + static_cast<size_t>(g)]));
    const int half = g / 8, plane = g / 2 % 4, offset = g % 2 * 16;
    const uint8_t* low = b + block::Q6_K::kCodes + half * 64 + plane % 2 * 32 + offset;
    const uint8_t* high = b + block::Q6_K::kHigh + half * 32 + offset;
    for (int i = 0; i < 16; ++i) {
      const int code = ((low[i] >> (plane / 2 * 4)) & 15) | (((high[i] >> (2 * plane)) & 3) << 4);
      out[g * 16 + i] = scale * static_cast<float>(code - 32);
    }
  }
}

template <void (*Block)(const uint8_t*, float*)>
void each_block(QuantType type, const uint8_t* row, uint32_t cols, float* out) {
  const QuantLayout& layout = quant_layout(type);
  for (uint32_t at = 0; at < cols; at += layout.block_weights, row += layout.block_bytes) Block(row, out + at);
}

}  // namespace

void dequantize_row(QuantType type, const std::byte* row, uint32_t cols, float* out) {
  HEDDLE_CHECK_OP(cols % quant_layout(type).block_weights, ==, 0u);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (type) {
    case QuantType::f32:
      std::memcpy(out, bytes, cols * sizeof(float));
      return;
    case QuantType::f16:
      for (uint32_t i = 0; i < cols; ++i) out[i] = half_at(bytes + 2 * size_t{i});
      return;
    case QuantType::bf16:
      for (uint32_t i = 0; i < cols; ++i) out[i] = bf16_to_f32(block::load<uint16_t>(bytes + 2 * size_t{i}));
      return;
    case QuantType::q4_0:
      return each_block<q4_0>(type, bytes, cols, out);
    case QuantType::q4_1:
      return each_block<q4_1>(type, bytes, cols, out);
    case QuantType::q5_0:
      return each_block<q5_0>(type, bytes, cols, out);
    case QuantType::q5_1:
      return each_block<q5_1>(type, bytes, cols, out);
    case QuantType::q8_0:
      return each_block<q8_0>(type, bytes, cols, out);
    case QuantType::q2_k:
      return each_block<q2_k>(type, bytes, cols, out);
    case QuantType::q3_k:
      return each_block<q3_k>(type, bytes, cols, out);
    case QuantType::q4_k:
      return each_block<q4_k>(type, bytes, cols, out);
    case QuantType::q5_k:
      return each_block<q5_k>(type, bytes, cols, out);
    case QuantType::q6_k:
      return each_block<q6_k>(type, bytes, cols, out);
  }
  check_failed(__FILE__, __LINE__, "type", fmt::format("no QuantType {}", static_cast<int>(type)));
}

}  // namespace heddle::device
