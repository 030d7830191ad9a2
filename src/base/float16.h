#pragma once
// Half-width floats as bit patterns: IEEE binary16 and bfloat16 to float, exactly, and back with round to nearest even.
// Portable integer code whose results equal the F16C instructions bit for bit (a signalling NaN comes out quiet, its
// payload kept), so that no value depends on the instruction set. Pure; any thread; never fails.
#include <bit>
#include <cstdint>

namespace heddle {

constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Below 0x400 the number is denormal: an integer times 2^-24, which float represents as a normal number.
  const uint32_t denormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t special = 0x7f800000u | (magnitude << 13) | (magnitude > 0x7c00u ? 0x00400000u : 0u);
  const uint32_t finite = magnitude < 0x400u ? denormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
}

constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                                               // below 2^-14: denormal or zero
    if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);           // below 2^-25
    const uint32_t shift = 126u - (magnitude >> 23);                           // 14 ... 24
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t up = (rest > half || (rest == half && (kept & 1u))) ? 1u : 0u;
    return static_cast<uint16_t>(sign | (kept + up));
  }
  const uint32_t rebased = magnitude - ((127u - 15u) << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
}

constexpr float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace heddle
