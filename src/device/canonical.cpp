#include "device/canonical.h"

#include "base/check.h"
#include "device/block_formats.h"

namespace heddle::device {
namespace {

using block::half_at;

// Inner loops run over constant counts of bytes without branches, so that compilers turn them into vector code even for
// the baseline instruction set: a model's worth of weights passes here while the user waits for the port.

// 16 bytes to 32 codes: low nibbles, then high nibbles.
void nibbles(const uint8_t* q, int8_t* codes) {
  for (int i = 0; i < 16; ++i) codes[i] = static_cast<int8_t>(q[i] & 15);
  for (int i = 0; i < 16; ++i) codes[i + 16] = static_cast<int8_t>(q[i] >> 4);
}

// Adds bit 4 to 32 codes from a plane of 32 bits. Each plane byte becomes eight bytes at once: copy it to all of them,
// keep bit i in byte i, and let the carry of + 0x7f move "not zero" to bit 7.
void add_high_bits(uint32_t plane, int8_t* codes) {
  for (int part = 0; part < 4; ++part) {
    const uint64_t bits = ((plane >> (8 * part)) & 0xffu) * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t high = ((bits + 0x7f7f7f7f7f7f7f7fu) >> 3) & 0x1010101010101010u;
    uint64_t low;
    std::memcpy(&low, codes + 8 * part, sizeof low);
    low |= high;
    std::memcpy(codes + 8 * part, &low, sizeof low);
  }
}

void q4_0(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  const float d = half_at(b + block::Q4_0::kScale);
  scales[0] = d;
  mins[0] = -8.0f * d;
  nibbles(b + block::Q4_0::kCodes, codes);
}

void q4_1(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  scales[0] = half_at(b + block::Q4_1::kScale);
  mins[0] = half_at(b + block::Q4_1::kMin);
  nibbles(b + block::Q4_1::kCodes, codes);
}

void q5_0(const uint8_t* b, int8_t* codes, float* scales, float*) {
  scales[0] = half_at(b + block::Q5_0::kScale);
  nibbles(b + block::Q5_0::kCodes, codes);
  add_high_bits(block::load<uint32_t>(b + block::Q5_0::kHigh), codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<int8_t>(codes[i] - 16);
}

void q5_1(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  scales[0] = half_at(b + block::Q5_1::kScale);
  mins[0] = half_at(b + block::Q5_1::kMin);
  nibbles(b + block::Q5_1::kCodes, codes);
  add_high_bits(block::load<uint32_t>(b + block::Q5_1::kHigh), codes);
}

void q8_0(const uint8_t* b, int8_t* codes, float* scales, float*) {
  scales[0] = half_at(b + block::Q8_0::kScale);
  std::memcpy(codes, b + block::Q8_0::kCodes, 32);
}

void q2_k(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  const float d = half_at(b + block::Q2_K::kScale), dmin = half_at(b + block::Q2_K::kMin);
  for (int g = 0; g < 16; ++g) {
    const uint8_t packed = b[block::Q2_K::kScales + static_cast<size_t>(g)];
    scales[g] = d * static_cast<float>(packed & 15);
    mins[g] = -(dmin * static_cast<float>(packed >> 4));
  }
  for (int plane = 0; plane < 8; ++plane) {  // 32 weights each
    const uint8_t* q = b + block::Q2_K::kCodes + plane / 4 * 32;
    const int shift = 2 * (plane % 4);
    for (int i = 0; i < 32; ++i) codes[plane * 32 + i] = static_cast<int8_t>((q[i] >> shift) & 3);
  }
}

void q3_k(const uint8_t* b, int8_t* codes, float* scales, float*) {
  const float d = half_at(b + block::Q3_K::kScale);
  int8_t packed[16];
  block::unpack_q3_scales(b + block::Q3_K::kScales, packed);
  for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(packed[g]);
  const uint8_t* high = b + block::Q3_K::kHigh;
  for (int plane = 0; plane < 8; ++plane) {
    const uint8_t* q = b + block::Q3_K::kCodes + plane / 4 * 32;
    const int shift = 2 * (plane % 4);
    for (int i = 0; i < 32; ++i) {
      const int code = ((q[i] >> shift) & 3) | (((high[i] >> plane) & 1) << 2);
      codes[plane * 32 + i] = static_cast<int8_t>(code - 4);
    }
  }
}

void k_scales(const uint8_t* b, float* scales, float* mins) {
  static_assert(block::Q4_K::kScales == block::Q5_K::kScales && block::Q4_K::kMin == block::Q5_K::kMin);
  const float d = half_at(b + block::Q4_K::kScale), dmin = half_at(b + block::Q4_K::kMin);
  const block::ScalesAndMins packed = block::unpack_scales_and_mins(b + block::Q4_K::kScales);
  for (int g = 0; g < 8; ++g) {
    scales[g] = d * static_cast<float>(packed.scale[g]);
    mins[g] = -(dmin * static_cast<float>(packed.min[g]));
  }
}

void q4_k(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  k_scales(b, scales, mins);
  for (int pair = 0; pair < 4; ++pair) {  // 64 weights each
    const uint8_t* q = b + block::Q4_K::kCodes + pair * 32;
    for (int i = 0; i < 32; ++i) codes[pair * 64 + i] = static_cast<int8_t>(q[i] & 15);
    for (int i = 0; i < 32; ++i) codes[pair * 64 + 32 + i] = static_cast<int8_t>(q[i] >> 4);
  }
}

void q5_k(const uint8_t* b, int8_t* codes, float* scales, float* mins) {
  k_scales(b, scales, mins);
  const uint8_t* high = b + block::Q5_K::kHigh;
  for (int g = 0; g < 8; ++g) {
    const uint8_t* q = b + block::Q5_K::kCodes + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      codes[g * 32 + i] = static_cast<int8_t>(((q[i] >> shift) & 15) | (((high[i] >> g) & 1) << 4));
    }
  }
}

void q6_k(const uint8_t* b, int8_t* codes, float* scales, float*) {
  const float d = half_at(b + block::Q6_K::kScale);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(static_cast<int8_t>(b[block::Q6_K::kScales + static_cast<size_t>(g)]));
  }
  for (int plane = 0; plane < 8; ++plane) {
    const uint8_t* low = b + block::Q6_K::kCodes + plane / 4 * 64 + plane % 2 * 32;
    const uint8_t* high = b + block::Q6_K::kHigh + plane / 4 * 32;
    const int low_shift = plane % 4 / 2 * 4, high_shift = 2 * (plane % 4);
    for (int i = 0; i < 32; ++i) {
      const int code = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      codes[plane * 32 + i] = static_cast<int8_t>(code - 32);
    }
  }
}

using BlockReader = void (*)(const uint8_t*, int8_t*, float*, float*);

template <BlockReader Read, QuantType Type, uint32_t Group>
void each_block(const uint8_t* row, uint32_t k, const CanonicalGroups& out) {
  constexpr QuantLayout layout = quant_layout(Type);
  constexpr uint32_t groups = layout.block_weights / Group;
  float *scales = out.scales, *mins = out.mins;
  for (uint32_t at = 0; at < k; at += layout.block_weights, row += layout.block_bytes, scales += groups) {
    Read(row, out.codes + at, scales, mins);
    if (mins != nullptr) mins += groups;
  }
}

}  // namespace

CanonicalLayout canonical_layout(QuantType type) {
  switch (type) {
    case QuantType::f32:
      return {CanonicalKind::f32, 0, false, 0, 0};
    case QuantType::f16:
      return {CanonicalKind::f16, 0, false, 0, 0};
    case QuantType::bf16:
      return {CanonicalKind::bf16, 0, false, 0, 0};
    case QuantType::q4_0:
    case QuantType::q4_1:
    case QuantType::q4_k:
      return {CanonicalKind::u4_group32, 32, true, 0, 15};
    case QuantType::q5_0:
      return {CanonicalKind::s8_group32, 32, false, -16, 15};
    case QuantType::q5_1:
    case QuantType::q5_k:
      return {CanonicalKind::s8_group32, 32, true, 0, 31};
    case QuantType::q8_0:
      return {CanonicalKind::s8_group32, 32, false, -128, 127};
    case QuantType::q2_k:
      return {CanonicalKind::s8_group16, 16, true, 0, 3};
    case QuantType::q3_k:
      return {CanonicalKind::s8_group16, 16, false, -4, 3};
    case QuantType::q6_k:
      return {CanonicalKind::s8_group16, 16, false, -32, 31};
  }
  check_failed(__FILE__, __LINE__, "type", fmt::format("no QuantType {}", static_cast<int>(type)));
}

void canonical_row(QuantType type, const std::byte* row, uint32_t k, CanonicalGroups out) {
  HEDDLE_CHECK_OP(k % quant_layout(type).block_weights, ==, 0u);
  HEDDLE_CHECK(!canonical_layout(type).has_min || out.mins != nullptr);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (type) {
    case QuantType::f32:
    case QuantType::f16:
    case QuantType::bf16:
      break;
    case QuantType::q4_0:
      return each_block<q4_0, QuantType::q4_0, 32>(bytes, k, out);
    case QuantType::q4_1:
      return each_block<q4_1, QuantType::q4_1, 32>(bytes, k, out);
    case QuantType::q5_0:
      return each_block<q5_0, QuantType::q5_0, 32>(bytes, k, out);
    case QuantType::q5_1:
      return each_block<q5_1, QuantType::q5_1, 32>(bytes, k, out);
    case QuantType::q8_0:
      return each_block<q8_0, QuantType::q8_0, 32>(bytes, k, out);
    case QuantType::q2_k:
      return each_block<q2_k, QuantType::q2_k, 16>(bytes, k, out);
    case QuantType::q3_k:
      return each_block<q3_k, QuantType::q3_k, 16>(bytes, k, out);
    case QuantType::q4_k:
      return each_block<q4_k, QuantType::q4_k, 32>(bytes, k, out);
    case QuantType::q5_k:
      return each_block<q5_k, QuantType::q5_k, 32>(bytes, k, out);
    case QuantType::q6_k:
      return each_block<q6_k, QuantType::q6_k, 16>(bytes, k, out);
  }
  check_failed(__FILE__, __LINE__, "type", fmt::format("{} is not a block format", quant_name(type)));
}

}  // namespace heddle::device
