// The kernels of sample_kernels.h, compiled once for every instruction set (HEDDLE_ISA names it).
#include "cpu/sample_kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace heddle::cpu::HEDDLE_ISA {
namespace {

// Sixteen float lanes. max(a, b) is b when either is NaN or both are zero, in every set.
#if defined(__AVX512F__)
struct F16 {
  __m512 v;
};
inline F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F16 load_part(const float* p, uint32_t n, float fill) {
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), static_cast<__mmask16>((1u << n) - 1u), p)};
}
inline void store(float* p, F16 a) { _mm512_storeu_ps(p, a.v); }
inline F16 splat(float x) { return {_mm512_set1_ps(x)}; }
inline F16 add(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F16 sub(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F16 mul(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F16 max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline bool any_nan(F16 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }
inline F16 zero_where_less(F16 a, F16 x, F16 limit) {  // x < limit ? 0 : a
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), a.v)};
}
inline F16 power_of_two(F16 shifted) {  // from n + 1.5 * 2^23
  const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted.v), _mm512_set1_epi32(0x4b400000));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23))};
}
#elif defined(__AVX2__)
struct F16 {
  __m256 a, b;
};
inline F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F16 load_part(const float* p, uint32_t n, float fill) {
  alignas(32) float lanes[16];
  for (uint32_t i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}
inline void store(float* p, F16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F16 add(F16 x, F16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F16 sub(F16 x, F16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F16 mul(F16 x, F16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F16 fma(F16 x, F16 y, F16 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F16 max(F16 x, F16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline bool any_nan(F16 x) {
  return _mm256_movemask_ps(
             _mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))) != 0;
}
inline F16 zero_where_less(F16 x, F16 y, F16 limit) {
  return {_mm256_and_ps(_mm256_cmp_ps(y.a, limit.a, _CMP_NLT_UQ), x.a),
          _mm256_and_ps(_mm256_cmp_ps(y.b, limit.b, _CMP_NLT_UQ), x.b)};
}
inline __m256 power_of_two(__m256 shifted) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4b400000));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline F16 power_of_two(F16 shifted) { return {power_of_two(shifted.a), power_of_two(shifted.b)}; }
#else
struct F16 {
  float v[16];
};
template <class F>
inline F16 lanes(F f) {
  F16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = f(i);
  return r;
}
inline F16 load(const float* p) {
  return lanes([&](int i) { return p[i]; });
}
inline F16 load_part(const float* p, uint32_t n, float fill) {
  return lanes([&](int i) { return static_cast<uint32_t>(i) < n ? p[i] : fill; });
}
inline void store(float* p, F16 a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
inline F16 splat(float x) {
  return lanes([&](int) { return x; });
}
inline F16 add(F16 a, F16 b) {
  return lanes([&](int i) { return a.v[i] + b.v[i]; });
}
inline F16 sub(F16 a, F16 b) {
  return lanes([&](int i) { return a.v[i] - b.v[i]; });
}
inline F16 mul(F16 a, F16 b) {
  return lanes([&](int i) { return a.v[i] * b.v[i]; });
}
inline F16 fma(F16 a, F16 b, F16 c) {
  return lanes([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline F16 max(F16 a, F16 b) {
  return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline bool any_nan(F16 a) {
  bool nan = false;
  for (int i = 0; i < 16; ++i) nan |= a.v[i] != a.v[i];
  return nan;
}
inline F16 zero_where_less(F16 a, F16 x, F16 limit) {
  return lanes([&](int i) { return x.v[i] < limit.v[i] ? 0.0f : a.v[i]; });
}
inline F16 power_of_two(F16 shifted) {
  return lanes([&](int i) {
    const int32_t n = __builtin_bit_cast(int32_t, shifted.v[i]) - 0x4b400000;
    // Shifted as unsigned: lanes that zero_where_less drops may hold anything.
    return __builtin_bit_cast(float, (static_cast<uint32_t>(n) + 127u) << 23);
  });
}
#endif

// The fixed tree: halves are folded onto each other, 16 -> 8 -> 4 -> 2 -> 1.
template <class Op>
inline float fold(F16 a, Op op) {
  float v[16];
  store(v, a);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = op(v[i], v[i + half]);
  return v[0];
}

inline float largest(F16 a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a.v);  // the order does not matter to a maximum without NaN
#elif defined(__AVX2__)
  const __m256 m = _mm256_max_ps(a.a, a.b);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
#else
  return fold(a, [](float x, float y) { return x > y ? x : y; });
#endif
}

constexpr float kMinusInfinity = -__builtin_inff();

// exp(x) for x <= 0, relative error below 2^-22; 0 below -87. x = n ln 2 + r with |r| <= ln 2 / 2, and a polynomial for
// exp(r) (coefficients of the Cephes library).
inline F16 exp(F16 x) {
  const F16 limit = splat(-87.0f);
  const F16 clamped = max(x, limit);
  const F16 shift = splat(12582912.0f);  // 1.5 * 2^23: rounds to an integer
  const F16 shifted = fma(clamped, splat(1.44269504088896341f), shift);
  const F16 n = sub(shifted, shift);
  const F16 r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), clamped));
  F16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), splat(1.0f));
  return zero_where_less(mul(p, power_of_two(shifted)), x, limit);
}

bool scan(const float* y, uint32_t n, float* block_max) {
  bool nan = false;
  uint32_t i = 0;
  for (; i + kSampleBlock <= n; i += kSampleBlock) {
    const F16 a = load(y + i), b = load(y + i + 16), c = load(y + i + 32), d = load(y + i + 48);
    nan |= any_nan(a) | any_nan(b) | any_nan(c) | any_nan(d);
    block_max[i / kSampleBlock] = largest(max(max(a, b), max(c, d)));
  }
  if (i < n) {
    F16 m = splat(kMinusInfinity);
    for (uint32_t j = i; j < n; j += 16) {
      const F16 a = load_part(y + j, n - j < 16 ? n - j : 16, kMinusInfinity);
      nan |= any_nan(a);
      m = max(m, a);
    }
    block_max[i / kSampleBlock] = largest(m);
  }
  return nan;
}

float exp_sum(const float* y, uint32_t n, float max_y, float inverse_temperature) {
  const F16 m = splat(max_y), t = splat(inverse_temperature);
  F16 sum = splat(0.0f);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) sum = add(sum, exp(mul(sub(load(y + i), m), t)));
  if (i < n) sum = add(sum, exp(mul(sub(load_part(y + i, n - i, kMinusInfinity), m), t)));
  return fold(sum, [](float a, float b) { return a + b; });
}

void exps(const float* y, uint32_t n, float max_y, float inverse_temperature, float* out) {
  const F16 m = splat(max_y), t = splat(inverse_temperature);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, exp(mul(sub(load(y + i), m), t)));
  if (i < n) {
    float part[16];
    store(part, exp(mul(sub(load_part(y + i, n - i, kMinusInfinity), m), t)));
    for (uint32_t j = 0; i + j < n; ++j) out[i + j] = part[j];
  }
}

}  // namespace

extern const SampleKernels sample_kernels;
const SampleKernels sample_kernels{scan, exp_sum, exps};

}  // namespace heddle::cpu::HEDDLE_ISA
