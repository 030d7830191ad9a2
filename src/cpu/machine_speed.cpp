#include "cpu/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cpu/isa.h"
#include "cpu/machine_speed_kernels.h"

namespace heddle::cpu {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // beyond any cache
constexpr int kRepeats = 3;

SpeedKernels kernels(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return avx512::speed_kernels();
    case Isa::avx2:
      return avx2::speed_kernels();
    case Isa::scalar:
      break;
  }
  return scalar::speed_kernels();
}

// Best time in which all threads, started together, do their part.
double best_seconds(uint32_t threads, const std::function<uint64_t(uint32_t)>& part) {
  double best = 1e9;
  std::atomic<uint64_t> sink{0};  // keeps the work from being dropped
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::atomic<uint32_t> ready{0};
    std::vector<std::thread> team;
    std::vector<MonotonicTime> begin(threads);
    std::vector<MonotonicTime> end(threads);
    for (uint32_t i = 0; i < threads; ++i) {
      team.emplace_back([&, i] {
        ++ready;
        while (ready.load() < threads) {
        }
        begin[i] = Monotonic::now();
        sink += part(i);
        end[i] = Monotonic::now();
      });
    }
    for (std::thread& thread : team) thread.join();
    best = std::min(best,
                    seconds(*std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end())));
  }
  return best;
}

}  // namespace

MachineSpeed measure_machine_speed(uint32_t threads, Isa isa) {
  const SpeedKernels k = kernels(isa);
  MachineSpeed speed;
  const uint64_t rounds = isa == Isa::scalar ? 4'000'000 : 10'000'000;
  const double int8_seconds = best_seconds(threads, [&](uint32_t) { return k.int8(rounds); });
  speed.int8_gmacs = static_cast<double>(rounds * k.int8_macs * threads) / int8_seconds * 1e-9;
  const double f32_seconds = best_seconds(threads, [&](uint32_t) { return k.f32(rounds / 2); });
  speed.f32_gmacs = static_cast<double>(rounds / 2 * k.f32_macs * threads) / f32_seconds * 1e-9;
  const std::vector<uint64_t> data(kReadBytes / sizeof(uint64_t), 1);
  const size_t share = data.size() / threads / 64 * 64;
  const double read_seconds = best_seconds(threads, [&](uint32_t i) { return k.read(data.data() + i * share, share); });
  speed.read_gbs = static_cast<double>(share * threads * sizeof(uint64_t)) / read_seconds * 1e-9;
  return speed;
}

}  // namespace heddle::cpu
