#pragma once
// What the two readers of block formats (dequantize.cpp, canonical.cpp) share: where the parts of a block lie, and the
// packed scales of the K formats. Offsets in bytes from the block's start. Internal to the room; any thread.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float16.h"

namespace heddle::device::block {

static_assert(std::endian::native == std::endian::little, "block formats are read in place as little-endian");

inline constexpr uint32_t kSuper = 256;  // weights in a block of the K formats

struct Q4_0 {  // q: byte i holds weight i (low nibble) and weight i + 16 (high nibble)
  static constexpr size_t kScale = 0, kCodes = 2, kBytes = 18;
};
struct Q4_1 {
  static constexpr size_t kScale = 0, kMin = 2, kCodes = 4, kBytes = 20;
};
struct Q5_0 {  // kHigh: 32 bits, bit i is bit 4 of weight i
  static constexpr size_t kScale = 0, kHigh = 2, kCodes = 6, kBytes = 22;
};
struct Q5_1 {
  static constexpr size_t kScale = 0, kMin = 2, kHigh = 4, kCodes = 8, kBytes = 24;
};
struct Q8_0 {
  static constexpr size_t kScale = 0, kCodes = 2, kBytes = 34;
};
struct Q2_K {  // scales: 16 bytes, low nibble scale, high nibble min; codes: per 128 weights 32 bytes of four 2-bit
               // planes
  static constexpr size_t kScales = 0, kCodes = 16, kScale = 80, kMin = 82, kBytes = 84;
};
struct Q3_K {  // kHigh: 32 bytes, bit p of byte i belongs to plane p (weight 32 p + i); a clear bit subtracts 4
  static constexpr size_t kHigh = 0, kCodes = 32, kScales = 96, kScale = 108, kBytes = 110;
};
struct Q4_K {  // codes: per 64 weights 32 bytes, low nibbles first
  static constexpr size_t kScale = 0, kMin = 2, kScales = 4, kCodes = 16, kBytes = 144;
};
struct Q5_K {  // kHigh: 32 bytes, bit p of byte i is bit 4 of weight 32 p + i
  static constexpr size_t kScale = 0, kMin = 2, kScales = 4, kHigh = 16, kCodes = 48, kBytes = 176;
};
struct Q6_K {  // per 128 weights 64 bytes of low nibbles and 32 bytes of four 2-bit planes; 16 signed scales
  static constexpr size_t kCodes = 0, kHigh = 128, kScales = 192, kScale = 208, kBytes = 210;
};

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline float half_at(const uint8_t* at) { return f16_to_f32(load<uint16_t>(at)); }

// Q4_K and Q5_K: eight pairs of 6-bit scale and min in 12 bytes. Pairs 0-3 lie whole in bytes 0-3 and 4-7; pairs 4-7
// have their low nibbles in bytes 8-11 and their upper two bits on top of pairs 0-3.
struct ScalesAndMins {
  uint8_t scale[8];
  uint8_t min[8];
};

inline ScalesAndMins unpack_scales_and_mins(const uint8_t* packed) {
  ScalesAndMins out;
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = packed[j] & 63;
    out.min[j] = packed[j + 4] & 63;
    out.scale[j + 4] = static_cast<uint8_t>((packed[j + 8] & 15) | ((packed[j] >> 6) << 4));
    out.min[j + 4] = static_cast<uint8_t>((packed[j + 8] >> 4) | ((packed[j + 4] >> 6) << 4));
  }
  return out;
}

// Q3_K: sixteen 6-bit scales, biased by 32, in 12 bytes: low nibbles in bytes 0-7 (0-7 low, 8-15 high), the upper two
// bits in bytes 8-11 (scale j: byte 8 + j % 4, bits 2 (j / 4)).
inline void unpack_q3_scales(const uint8_t* packed, int8_t scale[16]) {
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    const int high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
    scale[j] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

}  // namespace heddle::device::block
