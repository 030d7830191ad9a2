// The loops of machine_speed_kernels.h, compiled once for every instruction set.
#include <immintrin.h>

#include "cpu/machine_speed_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

// Enough independent chains to hide the latency of any of the instructions. Loops over them are unrolled by order: the
// chains must be registers.
constexpr int kChains = 12;

#if defined(__AVX512VNNI__)
uint64_t int8(uint64_t n) {
  __m512i acc[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  for (uint64_t round = 0; round < n; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) __asm__ volatile("" : "+v"(acc[i]));
  }
  __m512i sum = acc[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  return static_cast<uint32_t>(_mm512_reduce_add_epi32(sum));
}
constexpr uint64_t kInt8Macs = kChains * 64;

uint64_t f32(uint64_t n) {
  __m512 acc[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(0.001f);
  for (uint64_t round = 0; round < n; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) __asm__ volatile("" : "+v"(acc[i]));
  }
  __m512 sum = acc[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, acc[i]);
  return static_cast<uint64_t>(_mm512_reduce_add_ps(sum));
}
constexpr uint64_t kF32Macs = kChains * 16;

uint64_t read(const uint64_t* data, size_t n) {
  __m512i sum[4] = {};
  for (size_t i = 0; i < n; i += 32) {
    for (size_t j = 0; j < 4; ++j) sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(data + i + 8 * j));
  }
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(all));
}
#elif defined(__AVX2__)
uint64_t int8(uint64_t n) {
  __m256i acc[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_epi16(static_cast<int16_t>(i));
  const __m256i b = _mm256_set1_epi8(5);
  for (uint64_t round = 0; round < n; ++round) {
    __m256i a = _mm256_set1_epi8(3);
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __asm__ volatile("" : "+x"(a));  // or the product would be made once
      acc[i] = _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(a, b));
    }
  }
  __m256i sum = acc[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_epi16(sum, acc[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
}
constexpr uint64_t kInt8Macs = kChains * 32;

uint64_t f32(uint64_t n) {
  __m256 acc[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  for (uint64_t round = 0; round < n; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) __asm__ volatile("" : "+x"(acc[i]));
  }
  __m256 sum = acc[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_ps(sum, acc[i]);
  return static_cast<uint64_t>(_mm256_cvtss_f32(sum));
}
constexpr uint64_t kF32Macs = kChains * 8;

uint64_t read(const uint64_t* data, size_t n) {
  __m256i sum[4] = {};
  for (size_t i = 0; i < n; i += 16) {
    for (size_t j = 0; j < 4; ++j) {
      sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 4 * j)));
    }
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0));
}
#else
uint64_t int8(uint64_t n) {
  int32_t acc[kChains] = {};
  for (uint64_t round = 0; round < n; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      int32_t a = 3;
      __asm__ volatile("" : "+r"(a));
      acc[i] += a * 5;
    }
  }
  int64_t sum = 0;
  for (int32_t a : acc) sum += a;
  return static_cast<uint64_t>(sum);
}
constexpr uint64_t kInt8Macs = kChains;

uint64_t f32(uint64_t n) {
  float acc[kChains] = {};
  for (uint64_t round = 0; round < n; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __asm__ volatile("" : "+x"(acc[i]));
      acc[i] = acc[i] * 0.999f + 0.001f;
    }
  }
  float sum = 0;
  for (float a : acc) sum += a;
  return static_cast<uint64_t>(sum);
}
constexpr uint64_t kF32Macs = kChains;

uint64_t read(const uint64_t* data, size_t n) {
  uint64_t sum[4] = {};
  for (size_t i = 0; i < n; i += 4) {
    for (size_t j = 0; j < 4; ++j) sum[j] ^= data[i + j];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}
#endif

}  // namespace

SpeedKernels speed_kernels() { return {int8, kInt8Macs, f32, kF32Macs, read}; }

}  // namespace heddle::cpu::HEDDLE_ISA
