// The loop behind integer_peak, compiled once for every instruction set (HEDDLE_ISA names it).
#include "cpu/peak_kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace heddle::cpu::HEDDLE_ISA {

#if defined(__AVX512VNNI__)
uint64_t integer_products(uint32_t steps) {
  __m512i sum[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sum[i] = _mm512_setzero_si512();
  const __m512i w = _mm512_set1_epi8(3);
  for (uint32_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sum[i] = _mm512_dpbusd_epi32(sum[i], w, w);
      __asm__ volatile("" : "+v"(sum[i]));
    }
  }
  return uint64_t{steps} * 12 * 64;
}
#elif defined(__AVX2__)
uint64_t integer_products(uint32_t steps) {
  __m256i sum[10];
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) sum[i] = _mm256_setzero_si256();
  __m256i w = _mm256_set1_epi8(3);
  for (uint32_t step = 0; step < steps; ++step) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) {
      __asm__ volatile("" : "+x"(w));  // so that the product is computed every time
      sum[i] = _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(w, w));
      __asm__ volatile("" : "+x"(sum[i]));
    }
  }
  return uint64_t{steps} * 10 * 32;
}
#else
uint64_t integer_products(uint32_t steps) {
  int32_t sum[8] = {};
  int32_t w = 3;
  for (uint32_t step = 0; step < steps; ++step) {
    for (int32_t& s : sum) {
      __asm__ volatile("" : "+r"(w));
      s += w * w;
      __asm__ volatile("" : "+r"(s));
    }
  }
  return uint64_t{steps} * 8;
}
#endif

}  // namespace heddle::cpu::HEDDLE_ISA
