#pragma once
// The passes over a whole row of logits that sampling needs, per instruction set. Every set gives the same bits: sums
// run over 16 lanes (lane i takes elements i mod 16, ascending) and one fixed tree; the exponential is one polynomial
// in FMA. No inline functions and no other includes: the per-instruction-set sources read this header. Pure; any
// thread.
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kSampleBlock = 64;  // logits that share a block maximum

struct SampleKernels {
  // block_max[b] = the largest of y[64 b ... 64 b + 63], for the ceil(n / 64) blocks. True if some y is NaN; the maxima
  // mean nothing then.
  bool (*scan)(const float* y, uint32_t n, float* block_max);
  // y[i] becomes -inf where bit i % 32 of mask[i / 32] is not set. True if some y was NaN, masked or not.
  bool (*mask)(float* y, uint32_t n, const uint32_t* mask);
  // The sum over i of exp((y[i] - max) * inverse_temperature); max is finite and at least every y[i], which may be
  // -inf.
  float (*exp_sum)(const float* y, uint32_t n, float max, float inverse_temperature);
  // out[i] = exp((y[i] - max) * inverse_temperature)
  void (*exps)(const float* y, uint32_t n, float max, float inverse_temperature, float* out);
};

}  // namespace heddle::cpu
