#include "base/float16.h"

#include <doctest/doctest.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <bit>
#include <cmath>
#include <random>

namespace heddle {
namespace {

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// The number by definition: sign, exponent and fraction fields of IEEE 754 binary16.
double value_of_half(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST_CASE("every finite half becomes the float of the same value and sign") {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7c00) == 0x7c00) continue;
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    if (static_cast<double>(value) != value_of_half(static_cast<uint16_t>(half)) ||
        std::signbit(value) != ((half & 0x8000) != 0)) {
      FAIL_CHECK("half " << half << " gave " << value);
    }
  }
}

TEST_CASE("halves survive the way to float and back, NaNs quiet with their payload") {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const bool nan = (half & 0x7fff) > 0x7c00;
    const uint16_t back = f32_to_f16(f16_to_f32(static_cast<uint16_t>(half)));
    if (back != (nan ? half | 0x200u : half)) FAIL_CHECK("half " << half << " came back as " << back);
  }
  CHECK(bits(f16_to_f32(0x7c00)) == 0x7f800000u);
  CHECK(bits(f16_to_f32(0xfc00)) == 0xff800000u);
  CHECK(bits(f16_to_f32(0x7c01)) == 0x7fc02000u);
}

TEST_CASE("floats round to the nearest half, ties to even, at every pair of neighbours") {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const double low = value_of_half(static_cast<uint16_t>(half));
    const double high = value_of_half(static_cast<uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one bit more than a half has
    const uint32_t even = (half & 1u) == 0 ? half : half + 1;
    const bool right = f32_to_f16(middle) == even && f32_to_f16(std::nextafter(middle, 0.0f)) == half &&
                       f32_to_f16(std::nextafter(middle, 1e9f)) == half + 1 && f32_to_f16(-middle) == (even | 0x8000u);
    if (!right) FAIL_CHECK("between halves " << half << " and " << half + 1);
  }
  CHECK(f32_to_f16(65519.996f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
  CHECK(f32_to_f16(-1e30f) == 0xfc00);
  CHECK(f32_to_f16(0x1p-25f) == 0);
  CHECK(f32_to_f16(0x1.000002p-25f) == 1);
  CHECK(f32_to_f16(-0.0f) == 0x8000);
}

TEST_CASE("bfloat16 is the upper half of a float, rounded to nearest even") {
  CHECK(bits(bf16_to_f32(0x3f80)) == bits(1.0f));
  CHECK(f32_to_bf16(1.0f) == 0x3f80);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x3f808001u)) == 0x3f81);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)) == 0x7f80);
  CHECK(f32_to_bf16(std::bit_cast<float>(0x7f800001u)) == 0x7fc0);
  CHECK(f32_to_bf16(std::bit_cast<float>(0xff800000u)) == 0xff80);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) float hardware_to_f32(uint16_t half) { return _cvtsh_ss(half); }
__attribute__((target("f16c"))) uint16_t hardware_to_f16(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TEST_CASE("the portable conversions equal the F16C instructions bit for bit") {
  // clang 16 knows no __builtin_cpu_supports("f16c"); "avx" says that the system saves the registers.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_f16c = __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (!has_f16c) {
    MESSAGE("this machine has no F16C");
    return;
  }
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto h = static_cast<uint16_t>(half);
    if (bits(f16_to_f32(h)) != bits(hardware_to_f32(h))) FAIL_CHECK("half " << half);
  }
  const uint32_t seed = 7;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (f32_to_f16(value) != hardware_to_f16(value)) FAIL_CHECK("float bits " << bits(value));
  }
}
#endif

}  // namespace
}  // namespace heddle
