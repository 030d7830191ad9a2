#include "cpu/linear.h"

#include <doctest/doctest.h>

#include <limits>

#include "cpu/linear_harness.h"
#include "device/canonical.h"
#include "device/dequantize.h"

using namespace heddle;
using namespace heddle::cpu;
using namespace heddle::cpu::test;
using device::Compute;

namespace {

constexpr uint32_t kOddRows = 41, kCols = 512;

uint32_t cols_of(QuantType type) { return device::is_float(type) ? 203 : kCols; }

}  // namespace

TEST_CASE("every instruction set gives the scalar reference's bits, for every format and 1 to 33 and 64 rows") {
  for (const QuantType type : kAllTypes) {
    const uint32_t cols = cols_of(type);
    const Weights w = make_weights(type, kOddRows, cols, 21);
    const auto packed = pack({{w.raw}, {}, {}});
    const std::vector<float> x = make_activations(64, cols, 22);
    const std::vector<float> expected = product(Isa::scalar, packed->linear, x, 64);
    for (const Isa isa : available_isas()) {
      for (uint32_t m = 1; m <= 64; m = m == 33 ? 64 : m + 1) {
        CAPTURE(device::quant_name(type));
        CAPTURE(isa_name(isa));
        CAPTURE(m);
        const std::vector<float> out = product(isa, packed->linear, x, m);
        REQUIRE(same(out, expected, out.size()));
      }
    }
  }
}

TEST_CASE("widths from 1 to 50 outputs and 32 to 160 columns give the same bits, and nothing beyond is written") {
  for (const QuantType type : {QuantType::q4_1, QuantType::q8_0, QuantType::q5_0, QuantType::bf16}) {
    for (uint32_t n = 1; n <= 50; n += n < 34 ? 1 : 5) {
      const uint32_t cols = 32 * (1 + n % 5);
      const Weights w = make_weights(type, n, cols, n);
      const auto packed = pack({{w.raw}, {}, {}});
      const std::vector<float> x = make_activations(7, cols, n + 1);
      const std::vector<float> expected = product(Isa::scalar, packed->linear, x, 7);
      for (const Isa isa : available_isas()) {
        CAPTURE(n);
        const std::vector<float> out = product(isa, packed->linear, x, 7);
        REQUIRE(same(out, expected, out.size()));
        for (uint32_t m = 0; m < 7; ++m) {
          for (uint32_t i = 0; i < 3; ++i) REQUIRE(out[m * (n + 3) + n + i] == kGuard);
        }
      }
    }
  }
}

TEST_CASE("the reference is the dequantised product up to quantised activations and rounding") {
  for (const QuantType type : kAllTypes) {
    const uint32_t cols = cols_of(type), rows = 5;
    const Weights w = make_weights(type, kOddRows, cols, 31);
    const auto packed = pack({{w.raw}, {}, {}});
    const std::vector<float> x = make_activations(rows, cols, 32);
    const std::vector<float> out = product(Isa::scalar, packed->linear, x, rows);
    const bool quantised_rows = packed->linear.reads_cells();
    const uint32_t n_groups = cols / 32;
    std::vector<float> values(cols), scales(cols / 16), mins(cols / 16, 0.0f);
    std::vector<int8_t> codes(cols);
    const AlignedCells cells = quantised_rows ? quantised(Isa::scalar, x, rows, cols) : AlignedCells{};
    for (uint32_t n = 0; n < kOddRows; ++n) {
      device::dequantize_row(type, w.raw.row(n), cols, values.data());
      if (quantised_rows) device::canonical_row(type, w.raw.row(n), cols, {codes.data(), scales.data(), mins.data()});
      const uint32_t group = quantised_rows ? device::canonical_layout(type).group : 1;
      for (uint32_t m = 0; m < rows; ++m) {
        double exact = 0, activation_error = 0, magnitude = 0;
        for (uint32_t k = 0; k < cols; ++k) {
          const double a = x[m * cols + k];
          exact += a * double{values[k]};
          double parts = std::abs(double{values[k]});  // d q and m are added apart from each other
          if (quantised_rows) {
            parts = std::abs(double{scales[k / group]} * codes[k]) + std::abs(double{mins[k / group]});
            activation_error +=
                std::abs(double{values[k]}) * 0.500001 * double{cells.data.get()[act_index(m, k / 32, n_groups)].scale};
          }
          magnitude += std::abs(a) * parts;
        }
        // Chains of at most 3 roundings a group, each of a partial sum no larger than the magnitude (plus
        // quantisation).
        const double steps = quantised_rows ? 5.0 * n_groups + 8 : cols;
        const double bound = activation_error + (magnitude + activation_error) * steps * 0x1p-24;
        CAPTURE(device::quant_name(type));
        REQUIRE(std::abs(double{out[m * (kOddRows + 3) + n]} - exact) <= bound);
      }
    }
  }
}

TEST_CASE("extreme codes and scales stay exact in every instruction set") {
  // Rows of activations that drive every code to one end: all at +-1 beside a 0, alternating signs, a single spike.
  const uint32_t cols = 512, rows = 6;
  std::vector<float> x(rows * cols);
  for (uint32_t k = 0; k < cols; ++k) {
    x[0 * cols + k] = 1.0f;
    x[1 * cols + k] = -1.0f;
    x[2 * cols + k] = k % 2 ? 1.0f : -1.0f;
    x[3 * cols + k] = k % 32 == 0 ? -1.0f : 1e-3f;
    x[4 * cols + k] = k % 4 == 0 ? 127.0f : -128.0f;
    x[5 * cols + k] = 0.0f;
  }
  for (const QuantType type : kAllTypes) {
    for (const Fill fill : {Fill::zeros, Fill::ones}) {
      for (const float scale : {0x1p-14f, 60000.0f}) {
        const Weights w = make_weights(type, 17, cols, 41, fill, scale);
        const auto packed = pack({{w.raw}, {}, {}});
        const std::vector<float> expected = product(Isa::scalar, packed->linear, x, rows);
        for (uint32_t n = 0; n < 17; ++n) CHECK(expected[5 * 20 + n] == 0.0f);
        for (const Isa isa : available_isas()) {
          CAPTURE(device::quant_name(type));
          CAPTURE(isa_name(isa));
          const std::vector<float> out = product(isa, packed->linear, x, rows);
          REQUIRE(same(out, expected, out.size()));
        }
      }
    }
  }
}

TEST_CASE("a Q8_0 row of -128 and of 127 against full-range activations is the exact integer product") {
  for (const int8_t code : {int8_t{-128}, int8_t{127}}) {
    Weights w = make_weights(QuantType::q8_0, 16, 64, 1);
    for (size_t at = 0; at < w.bytes.size(); ++at) {
      if (at % 34 < 2) {
        const uint16_t one = f32_to_f16(1.0f);
        std::memcpy(&w.bytes[at], reinterpret_cast<const std::byte*>(&one) + at % 34, 1);
      } else {
        w.bytes[at] = static_cast<std::byte>(code);
      }
    }
    const auto packed = pack({{w.raw}, {}, {}});
    std::vector<float> x(64, 255.0f);  // v = 255, the largest; the step is 1
    for (const Isa isa : available_isas()) {
      const std::vector<float> out = product(isa, packed->linear, x, 1);
      for (uint32_t n = 0; n < 16; ++n) CHECK(out[n] == 64.0f * 255.0f * static_cast<float>(code));
    }
  }
}

TEST_CASE("a row with NaN or infinity is NaN in every output, and its neighbours do not notice") {
  for (const QuantType type : kAllTypes) {
    const uint32_t cols = cols_of(type);
    const Weights w = make_weights(type, kOddRows, cols, 51);
    const auto packed = pack({{w.raw}, {}, {}});
    const std::vector<float> clean = make_activations(19, cols, 52);
    std::vector<float> x = clean;
    x[3 * cols + 77] = std::numeric_limits<float>::quiet_NaN();
    x[17 * cols + 5] = std::numeric_limits<float>::infinity();
    for (const Isa isa : available_isas()) {
      const std::vector<float> expected = product(isa, packed->linear, clean, 19);
      const std::vector<float> out = product(isa, packed->linear, x, 19);
      for (uint32_t m = 0; m < 19; ++m) {
        for (uint32_t n = 0; n < kOddRows; ++n) {
          const float v = out[m * (kOddRows + 3) + n];
          if (m == 3 || (m == 17 && packed->linear.reads_cells())) {
            REQUIRE(std::isnan(v));
          } else if (m == 17) {
            REQUIRE(!std::isfinite(v));
          } else {
            REQUIRE(v == expected[m * (kOddRows + 3) + n]);
          }
        }
      }
    }
  }
}

TEST_CASE("a row's outputs do not depend on its place, its neighbours, or how rows and panels are split") {
  std::mt19937 random(61);
  for (const QuantType type : kAllTypes) {
    const uint32_t cols = cols_of(type), m = 50;
    const Weights w = make_weights(type, 77, cols, 62);
    const auto packed = pack({{w.raw}, {}, {}});
    const std::vector<float> x = make_activations(m, cols, 63);
    for (const Isa isa : available_isas()) {
      CAPTURE(device::quant_name(type));
      CAPTURE(isa_name(isa));
      const std::vector<float> whole = product(isa, packed->linear, x, m);
      const AlignedCells cells = packed->linear.reads_cells() ? quantised(isa, x, m, cols) : AlignedCells{};
      const LinearInput in{cells.data.get(), x.data(), cols};
      std::vector<float> parts(m * 80, kGuard);
      for (uint32_t first = 0; first < m;) {
        const uint32_t last = std::min<uint32_t>(m, first + 1 + static_cast<uint32_t>(random() % 20));
        for (uint32_t panel = 0; panel < packed->linear.n_panels();) {
          const uint32_t end =
              std::min<uint32_t>(packed->linear.n_panels(), panel + 1 + static_cast<uint32_t>(random() % 3));
          linear_tile(isa, packed->linear, panel, end, first, last, in, {.out = parts.data(), .ldo = 80});
          panel = end;
        }
        first = last;
      }
      REQUIRE(parts == whole);
      // The same row alone.
      const std::vector<float> row(x.begin() + 29 * cols, x.begin() + 30 * cols);
      const std::vector<float> alone = product(isa, packed->linear, row, 1);
      REQUIRE(std::equal(alone.begin(), alone.begin() + 77, whole.begin() + 29 * 80));
    }
  }
}

TEST_CASE("bias and residual are added once, after the product, also in place") {
  for (const QuantType type : {QuantType::q4_1, QuantType::f32}) {
    const uint32_t cols = cols_of(type), m = 18, n = kOddRows;
    const Weights w = make_weights(type, n, cols, 71);
    const auto packed = pack({{w.raw}, {}, {}});
    const std::vector<float> x = make_activations(m, cols, 72), bias = make_activations(1, n, 73),
                             residual = make_activations(m, n, 74);
    for (const Isa isa : available_isas()) {
      const std::vector<float> plain = product(isa, packed->linear, x, m);
      const AlignedCells cells = packed->linear.reads_cells() ? quantised(isa, x, m, cols) : AlignedCells{};
      std::vector<float> out = residual;
      linear_tile(isa, packed->linear, 0, packed->linear.n_panels(), 0, m, {cells.data.get(), x.data(), cols},
                  {.out = out.data(), .ldo = n, .bias = bias.data(), .residual = out.data(), .ldr = n});
      for (uint32_t i = 0; i < m * n; ++i) {
        const float v = plain[i / n * (n + 3) + i % n] + bias[i % n];
        REQUIRE(out[i] == residual[i] + v);
      }
    }
  }
}

TEST_CASE("stacked formats fill one output, whatever the segments") {
  const Weights q = make_weights(QuantType::q4_k, 35, 256, 81), v = make_weights(QuantType::q6_k, 19, 256, 82),
                u = make_weights(QuantType::f16, 5, 256, 83);
  const auto stacked = pack({{q.raw, v.raw, u.raw}, {}, {}});
  const std::vector<float> x = make_activations(9, 256, 84);
  for (const Isa isa : available_isas()) {
    const std::vector<float> out = product(isa, stacked->linear, x, 9);
    uint32_t column = 0;
    for (const Weights* part : {&q, &v, &u}) {
      const auto alone = pack({{part->raw}, {}, {}});
      const std::vector<float> expected = product(isa, alone->linear, x, 9);
      for (uint32_t m = 0; m < 9; ++m) {
        for (uint32_t n = 0; n < part->raw.rows; ++n) {
          REQUIRE(out[m * 62 + column + n] == expected[m * (part->raw.rows + 3) + n]);
        }
      }
      column += part->raw.rows;
    }
  }
}

TEST_CASE("f32 compute multiplies with the dequantised weights") {
  const Weights w = make_weights(QuantType::q4_k, kOddRows, 256, 91);
  const auto packed = pack({{w.raw}, {}, {}}, Compute::f32);
  CHECK(!packed->linear.reads_cells());
  const std::vector<float> x = make_activations(3, 256, 92);
  std::vector<float> values(256);
  for (const Isa isa : available_isas()) {
    const std::vector<float> out = product(isa, packed->linear, x, 3);
    for (uint32_t n = 0; n < kOddRows; ++n) {
      device::dequantize_row(w.raw.type, w.raw.row(n), 256, values.data());
      for (uint32_t m = 0; m < 3; ++m) {
        float acc = 0;
        for (uint32_t k = 0; k < 256; ++k) acc = std::fma(x[m * 256 + k], values[k], acc);
        REQUIRE(out[m * (kOddRows + 3) + n] == acc);
      }
    }
  }
}
