#include "cpu/cpu_device.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cpu/cpu_linear.h"
#include "fake_loop.h"
#include "linear_harness.h"

using namespace heddle;
using namespace heddle::cpu;
using device::QuantType;
using device::Tensor;
using device::TensorUse;

namespace {

struct Fixture {
  explicit Fixture(uint32_t helpers = 1, device::Compute compute = device::Compute::automatic)
      : team(loop, {.helpers = helpers, .loop_is_member = true}),
        device(team, {.isa = available_isas().back(), .compute = compute, .threads_why = "because a test says so"}) {
    device.allocate_arenas(1, size_t{64} << 20);
  }
  Tensor random_tensor(uint32_t rows, uint32_t cols, TensorUse use = TensorUse::plain) {
    const Tensor t = device.tensor(0, rows, cols, use);
    const auto values = test::make_activations(rows, cols, static_cast<uint32_t>(random()));
    std::copy(values.begin(), values.end(), t.data);
    return t;
  }
  std::unique_ptr<device::Linear> make(uint32_t out, uint32_t in, QuantType type, device::Vector bias = {}) {
    const test::Weights weights = test::make_weights(type, out, in, static_cast<uint32_t>(random()));
    auto linear = device.make_linear({.parts = {weights.raw}, .row_order = {}, .bias = bias});
    REQUIRE(linear.has_value());
    return std::move(*linear);
  }
  device::Vector random_vector(uint32_t n) { return device.make_vector(test::make_activations(1, n, 3)); }
  void run() {
    bool done = false;
    device.queue().on_done([&] { done = true; });
    loop.run_until([&] { return done; });
  }
  device::Queue& queue() { return device.queue(); }

  FakeLoop loop;
  Team team;
  CpuDevice device;
  std::mt19937 random{11};
};

std::vector<float> values_of(const Tensor& t) { return {t.data, t.data + size_t{t.rows} * t.cols}; }

// The product by itself, without the device.
std::vector<float> product_of(const device::Linear& linear, const std::vector<float>& x, uint32_t rows) {
  const PackedLinear& packed = static_cast<const CpuLinear&>(linear).packed();
  const auto padded = test::product(available_isas().back(), packed, x, rows);
  std::vector<float> out;
  for (uint32_t r = 0; r < rows; ++r)
    out.insert(out.end(), padded.begin() + r * (packed.rows() + 3),
               padded.begin() + r * (packed.rows() + 3) + packed.rows());
  return out;
}

}  // namespace

TEST_CASE("a linear layer gives the same rows for every batch, input kind and thread count") {
  for (const QuantType type : {QuantType::q4_1, QuantType::q8_0, QuantType::q6_k, QuantType::f16, QuantType::f32}) {
    CAPTURE(device::quant_name(type));
    for (const uint32_t rows : {1u, 5u, 16u, 33u, 130u, 300u}) {
      CAPTURE(rows);
      for (const uint32_t helpers : {0u, 3u}) {
        Fixture f(helpers);
        const auto linear = f.make(300, 256, type);
        const Tensor plain = f.random_tensor(rows, 256), out = f.device.tensor(0, rows, 300, TensorUse::plain);
        const Tensor fed = f.device.tensor(0, rows, 256, TensorUse::linear_input);
        const Tensor again = f.device.tensor(0, rows, 300, TensorUse::plain);
        std::copy_n(plain.data, size_t{rows} * 256, fed.data);
        f.device.linear(f.queue(), *linear, plain, out);
        f.device.linear(f.queue(), *linear, fed, again);
        f.run();
        CHECK(values_of(out) == product_of(*linear, values_of(plain), rows));
        CHECK(values_of(again) == values_of(out));
      }
    }
  }
}

TEST_CASE("a bias is added, and a wide layer may mix weight types") {
  Fixture f;
  const auto bias = f.random_vector(96);
  const test::Weights a = test::make_weights(QuantType::q4_k, 48, 256, 1);
  const test::Weights b = test::make_weights(QuantType::q6_k, 48, 256, 2);
  auto with = f.device.make_linear({.parts = {a.raw, b.raw}, .row_order = {}, .bias = bias});
  auto without = f.device.make_linear({.parts = {a.raw, b.raw}, .row_order = {}, .bias = {}});
  REQUIRE(with.has_value());
  REQUIRE(without.has_value());
  CHECK((*with)->in_features() == 256);
  CHECK((*with)->out_features() == 96);
  const Tensor x = f.random_tensor(7, 256), y = f.device.tensor(0, 7, 96, TensorUse::plain);
  f.device.linear(f.queue(), **with, x, y);
  f.run();
  auto expected = product_of(**without, values_of(x), 7);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias.data[i % 96];
  CHECK(values_of(y) == expected);
}

TEST_CASE("a tensor written twice is quantised anew, and one written without quantising is not taken for fresh") {
  Fixture f;
  const auto linear = f.make(64, 128, QuantType::q4_0);
  const auto weight = f.random_vector(128);
  const Tensor x = f.random_tensor(5, 128), y = f.random_tensor(5, 128);
  const Tensor fed = f.device.tensor(0, 5, 128, TensorUse::linear_input);
  Tensor out[4];
  std::vector<float> in[4];
  for (Tensor& t : out) t = f.device.tensor(0, 5, 64, TensorUse::plain);
  const auto step = [&](int i) {
    f.device.linear(f.queue(), *linear, fed, out[i]);
    f.run();
    in[i] = values_of(fed);
  };
  f.device.norm(f.queue(), x, weight, 1e-5f, fed);
  step(0);
  f.device.add_norm(f.queue(), x, y, weight, 1e-5f, fed);
  step(1);
  f.device.add(f.queue(), fed, y);  // leaves no cells behind
  step(2);
  const std::vector<uint32_t> rows{4, 3, 2, 1, 0};
  f.device.gather_rows(f.queue(), y, rows, fed);
  step(3);
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(values_of(out[i]) == product_of(*linear, in[i], 5));
  }
  CHECK(in[0] != in[1]);
}

TEST_CASE("steps that share an arena may be appended before the one before has run") {
  // Two steps of other shapes in the same memory: the second is appended while the first waits.
  for (int round = 0; round < 20; ++round) {
    Fixture f;
    const auto linear = f.make(256, 256, QuantType::q8_0);
    const auto weight = f.random_vector(256);
    const auto inputs = [&](uint32_t rows) { return test::make_activations(rows, 256, rows); };
    const auto expected = [&](uint32_t rows) {
      std::vector<float> x = inputs(rows), normed(x.size());
      for (uint32_t r = 0; r < rows; ++r)
        op_kernels_of(Isa::scalar).norm(&x[r * 256], nullptr, weight.data, 256, 1e-5f, &normed[r * 256]);
      return product_of(*linear, normed, rows);
    };
    const std::vector<float> a = inputs(90), b = inputs(33);
    std::vector<float> got_a(90 * 256), got_b(33 * 256);
    const Tensor source_a{const_cast<float*>(a.data()), 90, 256, nullptr};
    const Tensor source_b{const_cast<float*>(b.data()), 33, 256, nullptr};
    for (const auto& [source, got] : {std::pair{source_a, &got_a}, std::pair{source_b, &got_b}}) {
      f.device.reset_arena(0);
      const Tensor fed = f.device.tensor(0, source.rows, 256, TensorUse::linear_input);
      const Tensor out = f.device.tensor(0, source.rows, 256, TensorUse::plain);
      f.device.norm(f.queue(), source, weight, 1e-5f, fed);
      f.device.linear(f.queue(), *linear, fed, out);
      f.device.copy_to_host(f.queue(), out, got->data());
      f.queue().on_done([] {});
    }
    f.run();
    CHECK(got_a == expected(90));
    CHECK(got_b == expected(33));
  }
}

TEST_CASE("embedding takes host ids and the token that the slot sampled last, and scales") {
  Fixture f;
  f.device.allocate_slots(4, 50);
  const auto table = f.make(50, 64, QuantType::q4_1);
  // Slot 2 samples token 31 greedily.
  const Tensor logits = f.device.tensor(0, 1, 50, TensorUse::plain);
  std::fill_n(logits.data, 50, 0.0f);
  logits.data[31] = 5.0f;
  device::SlotSampling greedy;
  greedy.temperature = 0.0f;
  const std::vector<TokenId> prompt{1, 2};
  f.device.join(f.queue(), SlotId{2}, greedy, prompt, {});
  const std::vector<device::SampleRow> sample_rows{{SlotId{2}, 0, 0}};
  std::vector<device::SampledToken> sampled(1);
  f.device.sample(f.queue(), logits, sample_rows, sampled);
  const std::vector<TokenId> tokens{7, -3, 49, 0};
  const device::Batch batch{4, {}, tokens, {}, {}, {}};
  const Tensor out = f.device.tensor(0, 4, 64, TensorUse::plain);
  f.device.embed(f.queue(), *table, batch, 2.5f, out);
  f.run();
  CHECK(sampled[0].token == 31);
  const std::vector<TokenId> expected{7, 31, 49, 0};
  for (uint32_t r = 0; r < 4; ++r) {
    std::vector<float> row(64);
    static_cast<const CpuLinear&>(*table).packed().dequantize_row(static_cast<uint32_t>(expected[r]), row.data());
    for (uint32_t i = 0; i < 64; ++i) CHECK(out.data[r * 64 + i] == row[i] * 2.5f);
  }
  f.device.leave(f.queue(), SlotId{2});
  f.run();
}

TEST_CASE("gated, norm_add and gather work on whole batches as on single rows") {
  Fixture f(3);
  const uint32_t rows = 70, n = 96;
  const auto weight = f.random_vector(n);
  const Tensor gate_up = f.random_tensor(rows, 2 * n), out = f.device.tensor(0, rows, n, TensorUse::linear_input);
  const Tensor x = f.random_tensor(rows, n), y = f.random_tensor(rows, n);
  const auto x_before = values_of(x);
  f.device.gated(f.queue(), device::Activation::gelu_tanh, gate_up, out);
  f.device.norm_add(f.queue(), y, weight, 1e-6f, x);
  std::vector<uint32_t> picked{69, 0, 3};
  const Tensor gathered = f.device.tensor(0, 3, n, TensorUse::plain);
  f.device.gather_rows(f.queue(), out, picked, gathered);
  f.run();
  const OpKernels& ops = op_kernels_of(Isa::scalar);
  for (uint32_t r = 0; r < rows; ++r) {
    std::vector<float> one(n), sum(x_before.begin() + r * n, x_before.begin() + (r + 1) * n);
    ops.gelu_tanh(gate_up.data + r * 2 * n, gate_up.data + r * 2 * n + n, n, one.data());
    CHECK(std::memcmp(one.data(), out.data + r * n, n * sizeof(float)) == 0);
    ops.norm_add(y.data + r * n, weight.data, n, 1e-6f, sum.data());
    CHECK(std::memcmp(sum.data(), x.data + r * n, n * sizeof(float)) == 0);
  }
  for (uint32_t i = 0; i < 3; ++i)
    CHECK(std::memcmp(gathered.data + i * n, out.data + picked[i] * n, n * sizeof(float)) == 0);
}

TEST_CASE("a gated activation right after its linear layer gives the bits of the two apart, and fresh cells") {
  // hidden, ffn: whole cells or not, wide, and with panels that mix types.
  struct Case {
    uint32_t hidden, ffn;
    QuantType gate, up;
  };
  for (const Case c : {Case{128, 96, QuantType::q4_1, QuantType::q4_1},
                       {64, 1536, QuantType::q8_0, QuantType::q8_0},
                       {256, 64, QuantType::q4_k, QuantType::q6_k},
                       {64, 80, QuantType::q4_0, QuantType::q4_0},
                       {64, 40, QuantType::q4_0, QuantType::q8_0},
                       {32, 64, QuantType::f16, QuantType::f32}}) {
    CAPTURE(c.ffn);
    for (const uint32_t rows : {1u, 2u, 17u, 64u, 128u, 129u, 300u}) {
      CAPTURE(rows);
      for (const bool with_bias : {false, true}) {
        Fixture f(2);
        const test::Weights gate = test::make_weights(c.gate, c.ffn, c.hidden, 1);
        const test::Weights up = test::make_weights(c.up, c.ffn, c.hidden, 2);
        const device::Vector bias = with_bias ? f.random_vector(2 * c.ffn) : device::Vector{};
        auto linear = f.device.make_linear({.parts = {gate.raw, up.raw}, .row_order = {}, .bias = bias});
        REQUIRE(linear.has_value());
        const auto down = f.make(16, (c.ffn + 31) / 32 * 32, QuantType::q8_0);
        const bool whole = c.ffn % 32 == 0;
        const Tensor x = f.random_tensor(rows, c.hidden);
        const auto tensor = [&](uint32_t cols, TensorUse use) { return f.device.tensor(0, rows, cols, use); };
        const Tensor wide = tensor(2 * c.ffn, TensorUse::plain), apart = tensor(c.ffn, TensorUse::linear_input);
        const Tensor consumed = tensor(2 * c.ffn, TensorUse::plain), joined = tensor(c.ffn, TensorUse::linear_input);
        const Tensor down_apart = tensor(16, TensorUse::plain), down_joined = tensor(16, TensorUse::plain);
        f.device.linear(f.queue(), **linear, x, wide);
        f.run();  // nothing to join any more
        f.device.gated(f.queue(), device::Activation::silu, wide, apart);
        f.device.linear(f.queue(), **linear, x, consumed);
        f.device.gated(f.queue(), device::Activation::silu, consumed, joined);
        if (whole) {
          f.device.linear(f.queue(), *down, apart, down_apart);
          f.device.linear(f.queue(), *down, joined, down_joined);
        }
        f.run();
        CHECK(values_of(apart) == values_of(joined));
        if (!whole) continue;
        CHECK(values_of(down_apart) == product_of(*down, values_of(apart), rows));
        CHECK(values_of(down_joined) == values_of(down_apart));
      }
    }
  }
}

TEST_CASE("a linear layer that is held back is computed before whatever comes next") {
  Fixture f;
  const auto linear = f.make(64, 64, QuantType::q8_0);
  const Tensor x = f.random_tensor(3, 64), y = f.device.tensor(0, 3, 64, TensorUse::plain);
  const Tensor z = f.device.tensor(0, 3, 64, TensorUse::plain), other = f.random_tensor(3, 128);
  const auto expected = product_of(*linear, values_of(x), 3);
  std::vector<float> host(3 * 64);
  f.device.linear(f.queue(), *linear, x, y);
  f.device.copy_to_host(f.queue(), y, host.data());
  f.run();
  CHECK(host == expected);
  f.device.linear(f.queue(), *linear, x, y);
  f.device.gated(f.queue(), device::Activation::silu, other, z);  // of another tensor
  f.run();
  CHECK(values_of(y) == expected);
  std::fill_n(y.data, 3 * 64, 0.0f);
  f.device.linear(f.queue(), *linear, x, y);
  f.run();
  CHECK(values_of(y) == expected);
}

TEST_CASE("rope tables are shared by equal specs and follow scaling and factors in double") {
  Fixture f;
  const device::RopeSpec plain{.base = 10000.0f, .position_scale = 1.0f, .factors = {}};
  const device::RopeSpec scaled{.base = 500000.0f, .position_scale = 0.125f, .factors = std::vector<float>(16, 4.0f)};
  const uint32_t a = f.device.rope_table(plain, 32, 100), b = f.device.rope_table(scaled, 32, 100);
  CHECK(a != b);
  CHECK(f.device.rope_table(plain, 32, 80) == a);
  CHECK(f.device.rope_table(scaled, 32, 100) == b);
  CHECK(f.device.rope_table(plain, 64, 100) != a);
  const RopeTable table(scaled, 32, 70'000);
  for (const uint32_t position : {0u, 1u, 63u, 64u, 65u, 4'095u, 69'999u})
    for (uint32_t i = 0; i < 16; ++i) {
      const double angle = position * 0.125 * std::pow(500000.0, -2.0 * i / 32) / 4.0;
      CHECK(std::abs(table.row(position)[i] - std::cos(angle)) < 6e-8);
      CHECK(std::abs(table.row(position)[16 + i] - std::sin(angle)) < 6e-8);
    }
}

TEST_CASE("recycled memory stops growing after the first steps") {
  Fixture f;
  const auto linear = f.make(64, 128, QuantType::q4_0);
  size_t after_warm_up = 0;
  for (int step = 0; step < 50; ++step) {
    f.device.reset_arena(0);
    const Tensor x = f.random_tensor(200, 128), out = f.device.tensor(0, 200, 64, TensorUse::plain);
    for (int i = 0; i < 10; ++i) {
      f.device.linear(f.queue(), *linear, x, out);  // takes cells from the step's memory
    }
    f.run();
    if (step == 5) after_warm_up = f.device.step_memory_bytes();
  }
  CHECK(after_warm_up > 0);
  CHECK(f.device.step_memory_bytes() == after_warm_up);
}

TEST_CASE("f32 compute keeps activations as they are") {
  Fixture f(1, device::Compute::f32);
  const test::Weights weights = test::make_weights(QuantType::q4_k, 40, 256, 5);
  auto linear = f.device.make_linear({.parts = {weights.raw}, .row_order = {}, .bias = {}});
  REQUIRE(linear.has_value());
  const Tensor x = f.random_tensor(3, 256, TensorUse::linear_input), y = f.device.tensor(0, 3, 40, TensorUse::plain);
  f.device.linear(f.queue(), **linear, x, y);
  f.run();
  for (uint32_t r = 0; r < 3; ++r)
    for (uint32_t n = 0; n < 40; ++n) {
      std::vector<float> w(256);
      static_cast<const CpuLinear&>(**linear).packed().dequantize_row(n, w.data());
      double sum = 0, size = 0;
      for (uint32_t k = 0; k < 256; ++k) {
        sum += double{x.data[r * 256 + k]} * w[k];
        size += std::abs(double{x.data[r * 256 + k]} * w[k]);
      }
      CHECK(std::abs(y.data[r * 40 + n] - sum) <= 256 * 0x1p-24 * size);
    }
}

TEST_CASE("describe names the instruction set, the threads and the reason") {
  Fixture f(1);
  const std::string text = f.device.describe();
  CHECK(text.find(isa_name(available_isas().back())) != std::string::npos);
  CHECK(text.find("2 compute threads") != std::string::npos);
  CHECK(text.find("because a test says so") != std::string::npos);
}
