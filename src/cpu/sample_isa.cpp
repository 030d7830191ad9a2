// The kernels of sample_kernels.h, compiled once for every instruction set (HEDDLE_ISA names it).
#include "cpu/lanes.h"
#include "cpu/sample_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

HEDDLE_INLINE bool any_nan(Lanes x) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(
             _mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))) != 0;
#else
  bool nan = false;
  for (const float v : x.v) nan |= v != v;
  return nan;
#endif
}

bool scan(const float* y, uint32_t n, float* block_max) {
  bool nan = false;
  uint32_t i = 0;
  for (; i + kSampleBlock <= n; i += kSampleBlock) {
    const Lanes a = load(y + i), b = load(y + i + 16), c = load(y + i + 32), d = load(y + i + 48);
    const int nans = int{any_nan(a)} + int{any_nan(b)} + int{any_nan(c)} + int{any_nan(d)};
    nan |= nans != 0;
    block_max[i / kSampleBlock] = fold_max(max(max(a, b), max(c, d)));
  }
  if (i < n) {
    Lanes m = splat(kMinusInfinity);
    for (uint32_t j = i; j < n; j += 16) {
      const Lanes a = n - j < 16 ? load_part(y + j, n - j, kMinusInfinity) : load(y + j);
      nan |= any_nan(a);
      m = max(m, a);
    }
    block_max[i / kSampleBlock] = fold_max(m);
  }
  return nan;
}

bool mask(float* y, uint32_t n, const uint32_t* mask) {
  bool nan = false;
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Lanes a = load(y + i);
    nan |= any_nan(a);
    store(y + i, keep_lanes(a, (mask[i / 32] >> i % 32) & 0xffffu, kMinusInfinity));
  }
  if (i < n) {
    const Lanes a = load_part(y + i, n - i, kMinusInfinity);
    nan |= any_nan(a);
    store_part(y + i, keep_lanes(a, (mask[i / 32] >> i % 32) & 0xffffu, kMinusInfinity), n - i);
  }
  return nan;
}

float exp_sum(const float* y, uint32_t n, float max_y, float inverse_temperature) {
  const Lanes m = splat(max_y), t = splat(inverse_temperature);
  Lanes sum = splat(0.0f);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) sum = add(sum, exp(mul(sub(load(y + i), m), t)));
  if (i < n) sum = add(sum, exp(mul(sub(load_part(y + i, n - i, kMinusInfinity), m), t)));
  return fold_sum(sum);
}

void exps(const float* y, uint32_t n, float max_y, float inverse_temperature, float* out) {
  const Lanes m = splat(max_y), t = splat(inverse_temperature);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, exp(mul(sub(load(y + i), m), t)));
  if (i < n) store_part(out + i, exp(mul(sub(load_part(y + i, n - i, kMinusInfinity), m), t)), n - i);
}

}  // namespace

extern const SampleKernels sample_kernels;
const SampleKernels sample_kernels{scan, mask, exp_sum, exps};

}  // namespace heddle::cpu::HEDDLE_ISA
