// The loop behind bench_ops' f32 peak, per instruction set: independent chains of FMA in registers.
#include "cpu/fma_peak.h"
#include "cpu/lanes.h"

namespace heddle::cpu::HEDDLE_ISA {

float fma_chains(uint64_t n) {
#if defined(__AVX512F__)
  constexpr uint32_t kChains = kFmaPeakChains;
#else
  constexpr uint32_t kChains = kFmaPeakChains / 2;  // of two registers
#endif
  Lanes acc[kChains];
#pragma GCC unroll 16
  for (uint32_t i = 0; i < kChains; ++i) acc[i] = splat(static_cast<float>(i));
  const Lanes x = splat(0.999f), y = splat(1e-3f);
  for (uint64_t k = 0; k < n * (kFmaPeakChains / kChains); ++k)
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kChains; ++i) acc[i] = fma(acc[i], x, y);
  Lanes sum = acc[0];
  for (uint32_t i = 1; i < kChains; ++i) sum = add(sum, acc[i]);
  return fold_sum(sum);
}

}  // namespace heddle::cpu::HEDDLE_ISA
