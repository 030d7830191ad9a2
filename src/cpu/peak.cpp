#include "cpu/peak.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "cpu/peak_kernels.h"

namespace heddle::cpu {
namespace {

// The best of several rounds: what the machine does when nothing disturbs it.
template <class F>
double best_rate(int rounds, F run) {
  double best = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Monotonic::now();
    const auto done = static_cast<double>(run());
    best = std::max(best, done / seconds(Monotonic::now() - begin));
  }
  return best;
}

}  // namespace

double integer_peak(Isa isa) {
  constexpr uint32_t kSteps = 300'000;
  return 1e-9 * best_rate(20, [isa] {
           switch (isa) {
             case Isa::avx512:
               return avx512::integer_products(kSteps);
             case Isa::avx2:
               return avx2::integer_products(kSteps);
             case Isa::scalar:
               break;
           }
           return scalar::integer_products(kSteps);
         });
}

double read_bandwidth() {
  constexpr size_t kBytes = size_t{192} << 20;
  const std::vector<uint64_t> data(kBytes / sizeof(uint64_t), 1);
  uint64_t sum = 0;
  const double rate = best_rate(4, [&] {
    uint64_t part[8] = {};
    for (size_t i = 0; i < data.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) part[j] += data[i + j];
    }
    for (const uint64_t p : part) sum += p;
    return kBytes;
  });
  // Every word is 1: a sum that is off would mean that the reads were optimised away.
  return sum == 4 * data.size() ? 1e-9 * rate : 0.0;
}

}  // namespace heddle::cpu
