#include "cpu/rope_table.h"

#include <tbb/parallel_for.h>

#include <cmath>
#include <complex>

#include "base/check.h"

namespace heddle::cpu {
namespace {
constexpr uint32_t kRun = 64;  // positions that share a coarse angle
}

RopeTable::RopeTable(const device::RopeSpec& spec, uint32_t head_dim, uint32_t n_positions)
    : spec_(spec), head_dim_(head_dim), n_positions_(n_positions), values_(size_t{n_positions} * head_dim) {
  const uint32_t half = head_dim / 2;
  HEDDLE_CHECK(spec.factors.empty() || spec.factors.size() == half);
  std::vector<double> frequency(half);
  for (uint32_t i = 0; i < half; ++i) {
    frequency[i] = std::pow(static_cast<double>(spec.base), -2.0 * i / head_dim) * spec.position_scale;
    if (!spec.factors.empty()) frequency[i] /= spec.factors[i];
  }
  // e^(i (a + b)) = e^(i a) e^(i b) in double: two trigonometric calls serve 64 positions, and the error stays far
  // below what f32 can hold.
  std::vector<std::complex<double>> fine(size_t{kRun} * half);
  for (uint32_t p = 0; p < kRun; ++p)
    for (uint32_t i = 0; i < half; ++i) fine[p * half + i] = std::polar(1.0, p * frequency[i]);
  const uint32_t n_runs = (n_positions + kRun - 1) / kRun;
  tbb::parallel_for(0u, n_runs, [&](uint32_t run) {
    for (uint32_t i = 0; i < half; ++i) {
      const std::complex<double> coarse = std::polar(1.0, static_cast<double>(run * kRun) * frequency[i]);
      for (uint32_t p = 0; p < kRun && run * kRun + p < n_positions; ++p) {
        const std::complex<double> f = fine[p * half + i];
        float* row = values_.data() + (size_t{run} * kRun + p) * head_dim;
        row[i] = static_cast<float>(coarse.real() * f.real() - coarse.imag() * f.imag());
        row[half + i] = static_cast<float>(coarse.real() * f.imag() + coarse.imag() * f.real());
      }
    }
  });
}

}  // namespace heddle::cpu
