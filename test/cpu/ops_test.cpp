#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"

using namespace heddle;
using namespace heddle::cpu;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kGuard = 16;
constexpr float kGuardValue = 12345.0f;

// n values and a guard that no kernel may touch.
std::vector<float> guarded(std::vector<float> values) {
  values.insert(values.end(), kGuard, kGuardValue);
  return values;
}

std::vector<float> random_values(std::mt19937& random, uint32_t n, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// Bitwise, but any NaN equals any other: payloads are not part of the contract.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

const uint32_t kSizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 576, 640, 1000};

// Values at the edges of every range, among ordinary ones.
std::vector<float> edge_values(std::mt19937& random, uint32_t n) {
  const float edges[] = {0.0f,   -0.0f,   kInf,     -kInf,  kNan,   1e-45f, -1e-40f, 1e-38f, 3e38f, -3e38f,
                         -87.0f, -87.34f, -103.97f, 87.99f, 88.72f, 1e20f,  -1e20f,  1.0f,   -1.0f, 20.0f};
  std::vector<float> values = random_values(random, n, 3.0f);
  for (uint32_t i = 0; i < n; ++i)
    if (random() % 3 == 0) values[i] = edges[random() % std::size(edges)];
  return values;
}

// Runs `body(kernels, values...)` for every instruction set and size, and compares what it returns with the scalar
// set's.
template <class Body>
void check_every_set(Body body) {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const uint32_t n : kSizes) {
      CAPTURE(n);
      for (const bool edges : {false, true}) {
        std::mt19937 random(n + (edges ? 1000 : 0));
        const auto make = [&] { return edges ? edge_values(random, n) : random_values(random, n, 2.0f); };
        const std::vector<float> a = make(), b = make(), c = make();
        const std::vector<float> expected = body(op_kernels_of(Isa::scalar), a, b, c);
        const std::vector<float> got = body(op_kernels_of(isa), a, b, c);
        CHECK(same(expected, got));
        for (uint32_t i = 0; i < kGuard; ++i) CHECK(got[got.size() - 1 - i] == kGuardValue);
      }
    }
  }
}

}  // namespace

TEST_CASE("norm gives the same bits in every instruction set, with and without a residual, in place too") {
  check_every_set([](const OpKernels& ops, const auto& x, const auto& y, const auto& w) {
    const auto n = static_cast<uint32_t>(x.size());
    std::vector<float> sum = x, out = guarded(std::vector<float>(n)), alone = guarded(x);
    ops.norm(sum.data(), y.data(), w.data(), n, 1e-5f, out.data());
    ops.norm(alone.data(), nullptr, w.data(), n, 1e-5f, alone.data());
    sum.insert(sum.end(), alone.begin(), alone.end());
    sum.insert(sum.end(), out.begin(), out.end());
    return sum;
  });
}

TEST_CASE("norm_add, add and scale give the same bits in every instruction set") {
  check_every_set([](const OpKernels& ops, const auto& x, const auto& y, const auto& w) {
    const auto n = static_cast<uint32_t>(x.size());
    std::vector<float> a = guarded(x), b = guarded(x);
    ops.norm_add(y.data(), w.data(), n, 1e-6f, a.data());
    ops.add(b.data(), y.data(), n);
    ops.scale(b.data(), 25.298f, n, b.data());
    a.insert(a.end(), b.begin(), b.end());
    return a;
  });
}

TEST_CASE("gated activations give the same bits in every instruction set") {
  check_every_set([](const OpKernels& ops, const auto& gate, const auto& up, const auto&) {
    const auto n = static_cast<uint32_t>(gate.size());
    std::vector<float> a = guarded(gate), b = guarded(gate);
    ops.silu(gate.data(), up.data(), n, a.data());
    ops.gelu_tanh(gate.data(), up.data(), n, b.data());
    a.insert(a.end(), b.begin(), b.end());
    return a;
  });
}

TEST_CASE("rotation and cache stores give the same bits in every instruction set") {
  check_every_set([](const OpKernels& ops, const auto& x, const auto& table, const auto&) {
    const auto n = static_cast<uint32_t>(x.size()) / 2 * 2;
    std::vector<float> a = x;
    ops.rope(a.data(), table.data(), n);
    std::vector<uint16_t> k(size_t{n + 1} * 16, 7), v((n + 15) / 16 * 16 + 16, 7);
    ops.store_k(x.data(), n, k.data() + 5);
    ops.store_v(x.data(), n, v.data());
    for (const auto& halves : {k, v})
      for (const uint16_t half : halves) a.push_back(f16_to_f32(half));
    a.insert(a.end(), kGuard, kGuardValue);
    return a;
  });
}

TEST_CASE("a cache store rounds halves to nearest even, puts K into a column and pads V with zeros") {
  std::vector<float> x;
  for (uint32_t i = 0; i < 0x10000; i += 7) {
    const float exact = f16_to_f32(static_cast<uint16_t>(i));
    x.push_back(exact);
    x.push_back(std::nextafter(exact, kInf));
    x.push_back(exact + (f16_to_f32(static_cast<uint16_t>(i + 1)) - exact) / 2);  // a tie
  }
  for (const float v : {65504.0f, 65519.9f, 65520.0f, 1e9f, -65520.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 1e-30f, -0.0f})
    x.push_back(v);
  const auto n = static_cast<uint32_t>(x.size());
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    std::vector<uint16_t> k(size_t{n} * 16, 0xabcd), v((n + 15) / 16 * 16, 0xabcd);
    op_kernels_of(isa).store_k(x.data(), n, k.data() + 3);
    op_kernels_of(isa).store_v(x.data(), n, v.data());
    for (uint32_t i = 0; i < n; ++i) {
      const uint16_t expected = f32_to_f16(x[i]);
      if (k[size_t{i} * 16 + 3] != expected || v[i] != expected) {
        CAPTURE(x[i]);
        CHECK(k[size_t{i} * 16 + 3] == expected);
        CHECK(v[i] == expected);
      }
      for (uint32_t lane = 0; lane < 16; ++lane)
        if (lane != 3 && size_t{i} * 16 + lane < k.size()) REQUIRE(k[size_t{i} * 16 + lane] == 0xabcd);
    }
    for (uint32_t i = n; i < v.size(); ++i) CHECK(v[i] == 0);
  }
}

TEST_CASE("the scalar norm is within 4 ulp of the formula in double") {
  std::mt19937 random(5);
  for (const uint32_t n : kSizes) {
    CAPTURE(n);
    const auto x = random_values(random, n, 30.0f), w = random_values(random, n, 1.0f);
    std::vector<float> copy = x, out(n);
    op_kernels_of(Isa::scalar).norm(copy.data(), nullptr, w.data(), n, 1e-5f, out.data());
    double squares = 0;
    for (const float v : x) squares += double{v} * v;
    const double inverse = 1.0 / std::sqrt(squares / n + 1e-5);
    for (uint32_t i = 0; i < n; ++i) {
      const double expected = x[i] * inverse * w[i];
      CHECK(std::abs(out[i] - expected) <= 4 * 0x1p-24 * std::abs(expected) + 1e-40);
    }
  }
}

TEST_CASE("the scalar activations are within 2^-21 of the formula in double, and vanish where they should") {
  std::vector<float> gate;
  for (double x = -120; x < 120; x += 0.0371) gate.push_back(static_cast<float>(x));
  for (const float x : {0.0f, 1e-30f, -1e-30f, 500.0f, -500.0f, 1e10f, -1e10f}) gate.push_back(x);
  const auto n = static_cast<uint32_t>(gate.size());
  const std::vector<float> up(n, 1.0f);
  std::vector<float> silu(n), gelu(n);
  op_kernels_of(Isa::scalar).silu(gate.data(), up.data(), n, silu.data());
  op_kernels_of(Isa::scalar).gelu_tanh(gate.data(), up.data(), n, gelu.data());
  for (uint32_t i = 0; i < n; ++i) {
    const double x = gate[i];
    CAPTURE(x);
    const double s = x / (1 + std::exp(-x));
    CHECK(std::abs(silu[i] - s) <= 0x1p-21 * std::abs(s) + 1e-38 * std::abs(x) + 1e-44);
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double g = x / (1 + std::exp(-2 * u));
    // The argument of the exponential is rounded: its error counts as often as the exponent is large.
    CHECK(std::abs(gelu[i] - g) <=
          (0x1p-21 + 0x1p-22 * std::min(90.0, std::abs(2 * u))) * std::abs(g) + 1e-38 * std::abs(x) + 1e-44);
  }
}
