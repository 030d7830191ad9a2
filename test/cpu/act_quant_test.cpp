#include "cpu/act_quant.h"

#include <doctest/doctest.h>

#include <limits>

#include "cpu/linear_harness.h"

using namespace heddle;
using namespace heddle::cpu;
using namespace heddle::cpu::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

// Blocks of 32 that sit at a corner of the definition. [n, 32]
std::vector<float> corner_blocks() {
  std::vector<float> x;
  const auto block = [&x](auto value_of) {
    for (int i = 0; i < 32; ++i) x.push_back(value_of(i));
  };
  block([](int) { return 0.0f; });
  block([](int i) { return i % 2 ? 0.0f : -0.0f; });
  block([](int) { return 3.0f; });
  block([](int) { return -3.0f; });
  block([](int i) { return i == 7 ? 1e30f : 1e-30f; });
  block([](int i) { return i == 31 ? kMax : 0.0f; });
  block([](int i) { return i == 0 ? kMax : -kMax; });  // the span overflows
  block([](int i) { return i == 3 ? kNan : 1.0f; });
  block([](int i) { return i == 17 ? kInf : 1.0f; });
  block([](int i) { return i == 30 ? -kInf : -1.0f; });
  block([](int i) { return static_cast<float>(i) * 1e-40f; });  // denormals
  block([](int i) { return static_cast<float>(i) * 0x1p-105f; });
  block([](int i) { return static_cast<float>(i) * 0x1p-104f; });
  block([](int i) { return static_cast<float>(i - 10) * 0.5f; });
  block([](int i) { return i == 0 ? -101.5f : i == 1 ? 153.5f : static_cast<float>(i) + 0.5f; });  // ties at both ends
  block([](int i) { return i == 0 ? -100.5f : i == 1 ? 154.5f : static_cast<float>(i) + 0.5f; });
  block([](int i) { return i == 0 ? 255.0f : static_cast<float>(i) + 0.5f; });
  block([](int i) { return i == 0 ? -255.0f : -static_cast<float>(i) - 0.5f; });
  return x;
}

bool equal(const ActCell& a, const ActCell& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("a cell approximates its values to half a step, and its sums are those of its codes") {
  const uint32_t rows = 37, cols = 320;
  const std::vector<float> x = make_activations(rows, cols, 1);
  const AlignedCells cells = quantised(Isa::scalar, x, rows, cols);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t g = 0; g < cols / 32; ++g) {
      const ActCell& cell = cells.data.get()[act_index(row, g, cols / 32)];
      int sum[2] = {0, 0};
      for (uint32_t i = 0; i < 32; ++i) {
        const int v = cell.codes[i] + cell.offset;
        sum[i / 16] += v;
        const double error = std::abs(double{x[row * cols + g * 32 + i]} - double{cell.scale} * v);
        REQUIRE(error <= 0.5000001 * double{cell.scale});
      }
      REQUIRE(cell.neg_half_sum[0] == -sum[0]);
      REQUIRE(cell.neg_half_sum[1] == -sum[1]);
      REQUIRE(cell.neg_sum == -(sum[0] + sum[1]));
      REQUIRE(cell.sum == cell.scale * static_cast<float>(sum[0] + sum[1]));
    }
  }
}

TEST_CASE("corner blocks become what act_cell.h says") {
  const std::vector<float> x = corner_blocks();
  const auto cols = static_cast<uint32_t>(x.size());
  const AlignedCells cells = quantised(Isa::scalar, x, 1, cols);
  for (uint32_t g = 0; g < cols / 32; ++g) {
    CAPTURE(g);
    const ActCell& cell = cells.data.get()[act_index(0, g, cols / 32)];
    float low = 0, high = 0;
    bool finite = true;
    for (uint32_t i = 0; i < 32; ++i) {
      const float v = x[g * 32 + i];
      finite = finite && std::isfinite(v);
      low = std::min(low, v);
      high = std::max(high, v);
    }
    const bool fault = !finite || !std::isfinite(high - low);
    CHECK(std::isnan(cell.scale) == fault);
    CHECK(std::isnan(cell.sum) == fault);
    const bool zero = fault || high - low < 0x1p-100f;
    if (zero) {
      for (const int8_t code : cell.codes) CHECK(code == 0);
      CHECK(cell.offset == 0);
      if (!fault) CHECK(cell.scale == 0.0f);
      continue;
    }
    for (uint32_t i = 0; i < 32; ++i) {
      const double error = std::abs(double{x[g * 32 + i]} - double{cell.scale} * (cell.codes[i] + cell.offset));
      CHECK(error <= 0.50001 * double{cell.scale});
    }
  }
}

TEST_CASE("every instruction set quantises to the same bytes") {
  std::vector<float> x = make_activations(33, 576, 2);
  const std::vector<float> corners = corner_blocks();
  std::copy(corners.begin(), corners.end(), x.begin() + 576 * 5);
  const AlignedCells expected = quantised(Isa::scalar, x, 33, 576);
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const AlignedCells cells = quantised(isa, x, 33, 576);
    for (uint32_t row = 0; row < 33; ++row) {
      for (uint32_t g = 0; g < 18; ++g) {
        const size_t at = act_index(row, g, 18);
        REQUIRE(equal(cells.data.get()[at], expected.data.get()[at]));
      }
    }
  }
}

TEST_CASE("ties and scales in a million random blocks give the same bytes in every instruction set") {
  std::mt19937 random(3);
  const uint32_t rows = 32, cols = 1024;
  std::vector<float> x(rows * cols);
  for (int round = 0; round < 30; ++round) {
    for (size_t i = 0; i < x.size(); ++i) {
      // Small integers, halves of them and plain bit patterns: ties, equal values, wild exponents.
      const uint32_t bits = static_cast<uint32_t>(random());
      const float steps = static_cast<float>(static_cast<int>(bits % 511) - 255) * 0.5f;
      x[i] = round % 3 == 0 ? steps : round % 3 == 1 ? std::bit_cast<float>(bits & 0xbfffffffu) : steps * 0.013f;
    }
    const AlignedCells expected = quantised(Isa::scalar, x, rows, cols);
    for (const Isa isa : available_isas()) {
      const AlignedCells cells = quantised(isa, x, rows, cols);
      REQUIRE(std::memcmp(cells.data.get(), expected.data.get(), act_bytes(rows, cols)) == 0);
    }
  }
}

TEST_CASE("quantising a range of rows leaves the others alone") {
  const uint32_t rows = 21, cols = 96;
  const std::vector<float> x = make_activations(rows, cols, 4);
  for (const Isa isa : available_isas()) {
    const AlignedCells whole = quantised(isa, x, rows, cols);
    AlignedCells parts = quantised(isa, std::vector<float>(x.size(), 1.0f), rows, cols);
    const AlignedCells ones = quantised(isa, std::vector<float>(x.size(), 1.0f), rows, cols);
    quantise_rows(isa, x.data() + 9 * cols, cols, cols, 9, 18, parts.data.get());
    for (uint32_t row = 0; row < rows; ++row) {
      const AlignedCells& expected = row >= 9 && row < 18 ? whole : ones;
      for (uint32_t g = 0; g < 3; ++g) {
        const size_t at = act_index(row, g, 3);
        CHECK(equal(parts.data.get()[at], expected.data.get()[at]));
      }
    }
  }
}
