#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/act_quant.h"

using namespace heddle::cpu;

TEST_CASE("two terms of a row leave less than half of the second term's step, in every instruction set the same") {
  constexpr uint32_t kRows = 19, kCols = 96, kGroups = kCols / kCellValues;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kCols);
  for (float& v : x) v = normal(random);
  for (uint32_t r = 0; r < kRows; r += 3) x[r * kCols + 40] = 900.0f;  // an outlier coarsens its cell's first term
  std::vector<ActCell> reference;
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    const size_t n_cells = act_bytes(kRows, kCols) / sizeof(ActCell);
    std::vector<ActCell> first(n_cells), rest(n_cells);
    std::vector<float> scratch(kCols);
    quantise_rows(isa, x.data(), kCols, kCols, 0, kRows, first.data());
    quantise_rest(isa, x.data(), kCols, kCols, 0, kRows, first.data(), scratch.data(), rest.data());
    if (reference.empty()) reference = rest;
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t g = 0; g < kGroups; ++g) {
        const ActCell& a = first[act_index(r, g, kGroups)];
        const ActCell& b = rest[act_index(r, g, kGroups)];
        CHECK(b.scale <= a.scale / 200.0f);
        for (uint32_t i = 0; i < kCellValues; ++i) {
          const double value = double{a.scale} * (a.codes[i] + a.offset) + double{b.scale} * (b.codes[i] + b.offset);
          CHECK(std::abs(x[r * kCols + g * kCellValues + i] - value) <= 0.51 * b.scale + 1e-4 * b.scale);
        }
        const ActCell& same = reference[act_index(r, g, kGroups)];
        CHECK(std::memcmp(b.codes, same.codes, sizeof b.codes) == 0);
        CHECK(b.scale == same.scale);
        CHECK(b.sum == same.sum);
        CHECK(b.offset == same.offset);
      }
    }
  }
}

TEST_CASE("a row with a NaN has NaN in both terms, and no other row has") {
  constexpr uint32_t kCols = 32;
  std::vector<float> x(2 * kCols, 1.5f);
  x[3] = std::nanf("");
  std::vector<ActCell> first(act_bytes(2, kCols) / sizeof(ActCell)), rest(first.size());
  std::vector<float> scratch(kCols);
  quantise_rows(Isa::scalar, x.data(), kCols, kCols, 0, 2, first.data());
  quantise_rest(Isa::scalar, x.data(), kCols, kCols, 0, 2, first.data(), scratch.data(), rest.data());
  CHECK(std::isnan(rest[act_index(0, 0, 1)].scale));
  CHECK(std::isfinite(rest[act_index(1, 0, 1)].scale));
}
