#pragma once
// Sixteen float lanes, the unit of the canonical arithmetic: one AVX-512 register, two AVX ones, or an array. Every
// operation gives the same bits in every instruction set: multiplications and additions are fused only by fma(), and
// max(a, b) is b when either is NaN or both are zero. Read by *_isa.cpp files alone; everything is in the namespace of
// the instruction set, and nothing from another header is instantiated here: the linker could keep, for everyone, the
// copy that was compiled for the largest set.
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define HEDDLE_INLINE inline __attribute__((always_inline))

namespace heddle::cpu::HEDDLE_ISA {

inline constexpr float kMinusInfinity = -__builtin_inff();

#if defined(__AVX512F__)
struct Lanes {
  __m512 v;
};
HEDDLE_INLINE __mmask16 first_lanes(uint32_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
HEDDLE_INLINE Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
HEDDLE_INLINE void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
// n < 16 values; the other lanes are `fill`.
HEDDLE_INLINE Lanes load_part(const float* p, uint32_t n, float fill) {
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), first_lanes(n), p)};
}
HEDDLE_INLINE void store_part(float* p, Lanes a, uint32_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
HEDDLE_INLINE Lanes load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
HEDDLE_INLINE void store_half(uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
HEDDLE_INLINE Lanes splat(float x) { return {_mm512_set1_ps(x)}; }
HEDDLE_INLINE Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
HEDDLE_INLINE Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
HEDDLE_INLINE Lanes zero_where_less(Lanes a, Lanes x, Lanes limit) {  // x < limit ? 0 : a
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), a.v)};
}
// Lanes [first, last) of a, `fill` elsewhere; first <= last <= 16.
HEDDLE_INLINE Lanes keep_range(Lanes a, uint32_t first, uint32_t last, float fill) {
  const auto keep = static_cast<__mmask16>(((1u << last) - 1u) & ~((1u << first) - 1u));
  return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), keep, a.v)};
}
// Lanes whose bit is set, `fill` elsewhere.
HEDDLE_INLINE Lanes keep_lanes(Lanes a, uint32_t bits, float fill) {
  return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), static_cast<__mmask16>(bits), a.v)};
}
// 2^n from x = n + 1.5 * 2^23, -126 <= n <= 127.
HEDDLE_INLINE Lanes power_of_two(Lanes shifted) {
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted.v), _mm512_set1_epi32(0x4b400000));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23))};
}

#elif defined(__AVX2__)
struct Lanes {
  __m256 a, b;
};
HEDDLE_INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
HEDDLE_INLINE void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
HEDDLE_INLINE Lanes load_part(const float* p, uint32_t n, float fill) {
  float lanes[16];
  for (uint32_t i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}
HEDDLE_INLINE void store_part(float* p, Lanes x, uint32_t n) {
  float lanes[16];
  store(lanes, x);
  for (uint32_t i = 0; i < n; ++i) p[i] = lanes[i];
}
HEDDLE_INLINE Lanes load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
HEDDLE_INLINE void store_half(uint16_t* p, Lanes x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
HEDDLE_INLINE Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HEDDLE_INLINE Lanes add(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes sub(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes mul(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes div(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
HEDDLE_INLINE Lanes max(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes min(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
HEDDLE_INLINE Lanes zero_where_less(Lanes x, Lanes y, Lanes limit) {
  return {_mm256_and_ps(_mm256_cmp_ps(y.a, limit.a, _CMP_NLT_UQ), x.a),
          _mm256_and_ps(_mm256_cmp_ps(y.b, limit.b, _CMP_NLT_UQ), x.b)};
}
HEDDLE_INLINE __m256 keep_range(__m256 x, int base, uint32_t first, uint32_t last, float fill) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
  const __m256i drop = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(first)), lane),
                                       _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(static_cast<int>(last) - 1)));
  return _mm256_blendv_ps(x, _mm256_set1_ps(fill), _mm256_castsi256_ps(drop));
}
HEDDLE_INLINE Lanes keep_range(Lanes x, uint32_t first, uint32_t last, float fill) {
  return {keep_range(x.a, 0, first, last, fill), keep_range(x.b, 8, first, last, fill)};
}
HEDDLE_INLINE __m256 keep_lanes(__m256 x, uint32_t bits, float fill) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit), bit);
  return _mm256_blendv_ps(_mm256_set1_ps(fill), x, _mm256_castsi256_ps(set));
}
HEDDLE_INLINE Lanes keep_lanes(Lanes x, uint32_t bits, float fill) {
  return {keep_lanes(x.a, bits, fill), keep_lanes(x.b, bits >> 8, fill)};
}
HEDDLE_INLINE __m256 power_of_two(__m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4b400000));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
HEDDLE_INLINE Lanes power_of_two(Lanes shifted) { return {power_of_two(shifted.a), power_of_two(shifted.b)}; }

#else
struct Lanes {
  float v[16];
};
template <class F>
HEDDLE_INLINE Lanes each(F f) {
  Lanes r;
  for (uint32_t i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
// Half to float and back as in base/float16.h, which this file must not instantiate; a test holds them together.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude < 0x400u) bits = __builtin_bit_cast(uint32_t, static_cast<float>(magnitude) * 0x1p-24f);
  if (magnitude >= 0x7c00u) bits = 0x7f800000u | (magnitude << 13) | (magnitude > 0x7c00u ? 0x400000u : 0u);
  return __builtin_bit_cast(float, sign | bits);
}
inline uint16_t float_to_half(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Adding half a unit of the smallest denormal's ulp to the float rounds it there, to nearest even.
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, rounded) - 0x3f000000u));
  }
  const uint32_t rebased = magnitude - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
}
HEDDLE_INLINE Lanes load(const float* p) {
  return each([&](uint32_t i) { return p[i]; });
}
HEDDLE_INLINE void store(float* p, Lanes a) {
  for (uint32_t i = 0; i < 16; ++i) p[i] = a.v[i];
}
HEDDLE_INLINE Lanes load_part(const float* p, uint32_t n, float fill) {
  return each([&](uint32_t i) { return i < n ? p[i] : fill; });
}
HEDDLE_INLINE void store_part(float* p, Lanes a, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) p[i] = a.v[i];
}
HEDDLE_INLINE Lanes load_half(const uint16_t* p) {
  return each([&](uint32_t i) { return half_to_float(p[i]); });
}
HEDDLE_INLINE void store_half(uint16_t* p, Lanes a) {
  for (uint32_t i = 0; i < 16; ++i) p[i] = float_to_half(a.v[i]);
}
HEDDLE_INLINE Lanes splat(float x) {
  return each([&](uint32_t) { return x; });
}
HEDDLE_INLINE Lanes add(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] + b.v[i]; });
}
HEDDLE_INLINE Lanes sub(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] - b.v[i]; });
}
HEDDLE_INLINE Lanes mul(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] * b.v[i]; });
}
HEDDLE_INLINE Lanes div(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] / b.v[i]; });
}
HEDDLE_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each([&](uint32_t i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
HEDDLE_INLINE Lanes max(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
HEDDLE_INLINE Lanes min(Lanes a, Lanes b) {
  return each([&](uint32_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
HEDDLE_INLINE Lanes zero_where_less(Lanes a, Lanes x, Lanes limit) {
  return each([&](uint32_t i) { return x.v[i] < limit.v[i] ? 0.0f : a.v[i]; });
}
HEDDLE_INLINE Lanes keep_range(Lanes a, uint32_t first, uint32_t last, float fill) {
  return each([&](uint32_t i) { return i >= first && i < last ? a.v[i] : fill; });
}
HEDDLE_INLINE Lanes keep_lanes(Lanes a, uint32_t bits, float fill) {
  return each([&](uint32_t i) { return (bits >> i & 1u) != 0 ? a.v[i] : fill; });
}
HEDDLE_INLINE Lanes power_of_two(Lanes shifted) {
  return each([&](uint32_t i) {
    // Unsigned: a NaN may come in, whose result is not looked at.
    const uint32_t n = __builtin_bit_cast(uint32_t, shifted.v[i]) - 0x4b400000u;
    return __builtin_bit_cast(float, (n + 127u) << 23);
  });
}
#endif

HEDDLE_INLINE float first_lane(Lanes a) {
#if defined(__AVX512F__)
  return _mm512_cvtss_f32(a.v);
#elif defined(__AVX2__)
  return _mm256_cvtss_f32(a.a);
#else
  return a.v[0];
#endif
}

// The fixed tree: halves are folded onto each other, 16 -> 8 -> 4 -> 2 -> 1; lane i takes op(lane i, lane i + half).
#if defined(__AVX2__)
template <class Op256, class Op128>
HEDDLE_INLINE float fold(Lanes x, Op256 op, Op128 op4) {
#if defined(__AVX512F__)
  const __m256 low = _mm512_castps512_ps256(x.v), high = _mm512_extractf32x8_ps(x.v, 1);
#else
  const __m256 low = x.a, high = x.b;
#endif
  const __m256 eight = op(low, high);
  const __m128 four = op4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = op4(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(op4(two, _mm_movehdup_ps(two)));
}
HEDDLE_INLINE float fold_sum(Lanes x) {
  return fold(
      x, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); }, [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
HEDDLE_INLINE float fold_max(Lanes x) {
  return fold(
      x, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); }, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
#else
template <class Op>
HEDDLE_INLINE float fold(Lanes x, Op op) {
  for (uint32_t half = 8; half > 0; half /= 2)
    for (uint32_t i = 0; i < half; ++i) x.v[i] = op(x.v[i], x.v[i + half]);
  return x.v[0];
}
HEDDLE_INLINE float fold_sum(Lanes x) {
  return fold(x, [](float a, float b) { return a + b; });
}
HEDDLE_INLINE float fold_max(Lanes x) {
  return fold(x, [](float a, float b) { return a > b ? a : b; });
}
#endif

// exp(x), relative error below 2^-22 for x in [-87, 88]; 0 below, exp(88) above, NaN for NaN; exp(0) is 1.
// x = n ln 2 + r with |r| <= ln 2 / 2, and a polynomial for exp(r) (coefficients of the Cephes library).
HEDDLE_INLINE Lanes exp(Lanes x) {
  const Lanes low = splat(-87.0f);
  const Lanes shift = splat(12582912.0f);  // 1.5 * 2^23: an addition rounds to an integer
  const Lanes clamped = min(splat(88.0f), max(low, x));
  const Lanes shifted = fma(clamped, splat(1.44269504088896341f), shift);
  const Lanes n = sub(shifted, shift);
  const Lanes r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), clamped));
  Lanes p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), splat(1.0f));
  return zero_where_less(mul(p, power_of_two(shifted)), x, low);
}

}  // namespace heddle::cpu::HEDDLE_ISA
