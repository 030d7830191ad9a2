// bench_linear [ISA [NAME]]: how fast the linear layer is on this machine, one thread, for the shapes of the two test
// models. Prints per shape and row count GMAC/s with the share of the measured integer peak (vpdpbusd or vpmaddubsw,
// the set's own instruction), and GB/s of weights with the share of the measured read bandwidth. Every call works on
// the next of many copies of the matrix, so that weights come from memory, as in a model; the best of several rounds is
// printed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/float16.h"
#include "cpu/act_quant.h"
#include "cpu/linear.h"
#include "cpu/machine_speed.h"
#include "cpu/pack_linear.h"

namespace {

using namespace heddle;
using namespace heddle::cpu;
using device::QuantType;

struct Shape {
  const char* name;
  QuantType type;
  uint32_t n, k;
};

constexpr Shape kShapes[] = {
    {"smollm2 qkv", QuantType::q4_1, 960, 576},      {"smollm2 o", QuantType::q4_1, 576, 576},
    {"smollm2 gate-up", QuantType::q4_1, 3072, 576}, {"smollm2 down", QuantType::q4_1, 576, 1536},
    {"smollm2 head", QuantType::q8_0, 49152, 576},   {"gemma3 qkv", QuantType::q5_0, 1536, 640},
    {"gemma3 o", QuantType::q4_k, 640, 1024},        {"gemma3 gate-up", QuantType::q5_0, 4096, 640},
    {"gemma3 down", QuantType::q6_k, 640, 2048},     {"gemma3 head", QuantType::q8_0, 262144, 640},
    {"f32 gate-up", QuantType::f32, 3072, 576},      {"bf16 gate-up", QuantType::bf16, 3072, 576},
};

template <class F>
double best_seconds(int rounds, F run) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Monotonic::now();
    run();
    best = std::min(best, seconds(Monotonic::now() - begin));
  }
  return best;
}

std::vector<std::byte> random_weights(QuantType type, uint32_t n, uint32_t k) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(n * device::row_bytes(type, k));
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(random() & 0x3fu);  // no exponent of a half or float is all ones
  return bytes;
}

void bench(Isa isa, const Shape& shape, double peak, double bandwidth) {
  const std::vector<std::byte> bytes = random_weights(shape.type, shape.n, shape.k);
  const device::LinearSource source{{{shape.name, shape.type, shape.n, shape.k, bytes}}, {}, {}};
  WeightMemory memory;
  std::vector<PackedLinear> copies;
  const double packing = best_seconds(1, [&] {
    do {
      copies.push_back(PackedLinear::plan(source, device::Compute::automatic, memory).value());
      copies.back().pack_panels(source, 0, copies.back().n_panels());
    } while (memory.allocated() < (size_t{160} << 20));
  });
  fmt::print("{:16} {:5} {:6} x {:4}   packs {:4.1f} GB/s\n", shape.name, device::quant_name(shape.type), shape.n,
             shape.k, static_cast<double>(bytes.size() * copies.size()) / packing * 1e-9);
  for (const uint32_t m : {1u, 4u, 8u, 16u, 64u, 512u}) {
    if (m == 512 && shape.n > 10000) continue;
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t{m} * shape.k), out(size_t{m} * shape.n);
    for (float& v : x) v = normal(random);
    auto* cells = static_cast<ActCell*>(std::aligned_alloc(64, (act_bytes(m, shape.k) + 63) / 64 * 64));
    const double quantising = best_seconds(5, [&] { quantise_rows(isa, x.data(), shape.k, shape.k, 0, m, cells); });
    const double macs = double(shape.n) * shape.k * m;
    const size_t calls = std::clamp(static_cast<size_t>(20e9 * 0.02 / macs), size_t{1}, copies.size());
    size_t next = 0;
    const double t = best_seconds(4,
                                  [&] {
                                    for (size_t i = 0; i < calls; ++i) {
                                      const PackedLinear& w = copies[next++ % copies.size()];
                                      linear_tile(isa, w, 0, w.n_panels(), 0, m, {cells, x.data(), shape.k},
                                                  {.out = out.data(), .ldo = shape.n});
                                    }
                                  }) /
                     static_cast<double>(calls);
    const double gmacs = macs / t * 1e-9, gbs = static_cast<double>(copies[0].bytes()) / t * 1e-9;
    fmt::print("  m {:4}  {:8.1f} us  {:6.1f} GMAC/s {:5.1f} %  {:5.1f} GB/s {:5.1f} %  quantise {:5.2f} ns a value\n",
               m, t * 1e6, gmacs, gmacs / peak * 100, gbs, gbs / bandwidth * 100,
               quantising / (double(m) * shape.k) * 1e9);
    std::free(cells);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto isa = choose_isa(argc > 1 ? argv[1] : "");
  if (!isa) {
    fmt::print(stderr, "bench_linear: {}\n", isa.error().message);
    return 2;
  }
  const std::string_view only = argc > 2 ? argv[2] : "";
  const MachineSpeed speed = measure_machine_speed(1, *isa);
  const double peak = speed.int8_gmacs, bandwidth = speed.read_gbs;
  fmt::print("{}: peak {:.0f} GMAC/s, read bandwidth {:.1f} GB/s\n", isa_name(*isa), peak, bandwidth);
  for (const Shape& shape : kShapes) {
    if (std::string_view(shape.name).find(only) != std::string_view::npos) bench(*isa, shape, peak, bandwidth);
  }
}
