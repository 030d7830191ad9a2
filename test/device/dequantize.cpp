#include "device/dequantize.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "device/canonical.h"

namespace heddle::device {
namespace {

struct Golden {
  std::string name;
  uint32_t n_blocks, block_weights, block_bytes;
  std::vector<std::byte> blocks;
  std::vector<float> weights;
};

// Layout: head of tools/make_dequant_goldens.py.
std::vector<Golden> read_goldens() {
  std::ifstream file(HEDDLE_SOURCE_DIR "/test/data/device/dequant_goldens.bin", std::ios::binary);
  const std::string data{std::istreambuf_iterator<char>(file), {}};
  std::vector<Golden> goldens;
  size_t at = 0;
  auto take = [&](void* to, size_t bytes) {
    REQUIRE(bytes <= data.size() - at);
    std::memcpy(to, data.data() + at, bytes);
    at += bytes;
  };
  while (at < data.size()) {
    Golden golden;
    char name[9] = {};
    take(name, 8);
    golden.name = name;
    take(&golden.n_blocks, 4);
    take(&golden.block_weights, 4);
    take(&golden.block_bytes, 4);
    golden.blocks.resize(size_t{golden.n_blocks} * golden.block_bytes);
    take(golden.blocks.data(), golden.blocks.size());
    golden.weights.resize(size_t{golden.n_blocks} * golden.block_weights);
    take(golden.weights.data(), golden.weights.size() * sizeof(float));
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

std::optional<QuantType> type_named(std::string_view name) {
  for (size_t i = 0; i < kQuantTypes; ++i) {
    if (kQuantLayouts[i].name == name) return static_cast<QuantType>(i);
  }
  return std::nullopt;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// What a canonical row stands for, computed as canonical.h promises.
std::vector<float> expand(QuantType type, const std::byte* row, uint32_t k) {
  const CanonicalLayout layout = canonical_layout(type);
  std::vector<int8_t> codes(k);
  std::vector<float> scales(k / layout.group), mins(k / layout.group), out(k);
  canonical_row(type, row, k, {codes.data(), scales.data(), layout.has_min ? mins.data() : nullptr});
  CHECK(*std::min_element(codes.begin(), codes.end()) >= layout.code_min);
  CHECK(*std::max_element(codes.begin(), codes.end()) <= layout.code_max);
  for (uint32_t i = 0; i < k; ++i) {
    const float product = scales[i / layout.group] * static_cast<float>(codes[i]);
    out[i] = layout.has_min ? product + mins[i / layout.group] : product;
  }
  return out;
}

TEST_CASE("every format dequantises to the reference bit for bit, on random and extreme blocks") {
  const std::vector<Golden> goldens = read_goldens();
  REQUIRE(goldens.size() == kQuantTypes);
  for (const Golden& golden : goldens) {
    CAPTURE(golden.name);
    const std::optional<QuantType> type = type_named(golden.name);
    REQUIRE(type.has_value());
    REQUIRE(quant_layout(*type).block_weights == golden.block_weights);
    REQUIRE(quant_layout(*type).block_bytes == golden.block_bytes);
    std::vector<float> got(golden.weights.size());
    dequantize_row(*type, golden.blocks.data(), static_cast<uint32_t>(got.size()), got.data());
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += bits(got[i]) != bits(golden.weights[i]);
    CHECK(wrong == 0);
  }
}

TEST_CASE("canonical groups stand for the dequantised weights: bit for bit, for Q4_0 up to the sign of a zero") {
  const uint32_t seed = 20240611;
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Golden& golden : read_goldens()) {
    const QuantType type = type_named(golden.name).value();
    if (is_float(type)) continue;
    CAPTURE(golden.name);
    // The goldens' blocks, then the same with every byte but the scales random: codes meet every scale.
    std::vector<std::byte> blocks = golden.blocks;
    for (int round = 0; round < 20; ++round) {
      const auto k = static_cast<uint32_t>(golden.weights.size());
      std::vector<float> reference(k);
      dequantize_row(type, blocks.data(), k, reference.data());
      const std::vector<float> canonical = expand(type, blocks.data(), k);
      size_t different = 0, unequal = 0;
      for (uint32_t i = 0; i < k; ++i) {
        different += bits(canonical[i]) != bits(reference[i]);
        unequal += canonical[i] != reference[i];
      }
      CHECK(unequal == 0);
      if (type != QuantType::q4_0) CHECK(different == 0);
      const auto k_format = golden.block_weights == 256;
      const size_t scale_at = golden.name == "Q2_K"   ? 80
                              : golden.name == "Q3_K" ? 108
                              : golden.name == "Q6_K" ? 208
                                                      : 0;
      const size_t scale_bytes = type == QuantType::q4_1 || type == QuantType::q5_1 ||
                                         (k_format && type != QuantType::q3_k && type != QuantType::q6_k)
                                     ? 4
                                     : 2;
      for (size_t i = 0; i < blocks.size(); ++i) {
        const size_t at = i % golden.block_bytes;
        if (at < scale_at || at >= scale_at + scale_bytes) blocks[i] = static_cast<std::byte>(random() & 255u);
      }
    }
  }
}

TEST_CASE("a Q4_0 weight of a negative scale is plain zero in canonical form and minus zero in the reference") {
  std::byte block[18] = {};
  const uint16_t minus_one = 0xbc00;
  std::memcpy(block, &minus_one, 2);
  std::memset(block + 2, 0x88, 16);
  float reference[32];
  dequantize_row(QuantType::q4_0, block, 32, reference);
  CHECK(bits(reference[5]) == 0x80000000u);
  CHECK(bits(expand(QuantType::q4_0, block, 32)[5]) == 0u);
}

TEST_CASE("a row of several blocks puts every block's weights and groups in its place") {
  for (const Golden& golden : read_goldens()) {
    const QuantType type = type_named(golden.name).value();
    if (is_float(type)) continue;
    const CanonicalLayout layout = canonical_layout(type);
    const uint32_t n = golden.block_weights, groups = n / layout.group, k = 3 * n;
    std::vector<int8_t> codes(k), one_codes(n);
    std::vector<float> scales(k / layout.group), mins(k / layout.group), one_scales(groups), one_mins(groups);
    canonical_row(type, golden.blocks.data(), k, {codes.data(), scales.data(), mins.data()});
    for (uint32_t b = 0; b < 3; ++b) {
      canonical_row(type, golden.blocks.data() + b * golden.block_bytes, n,
                    {one_codes.data(), one_scales.data(), one_mins.data()});
      CHECK(std::memcmp(one_codes.data(), codes.data() + b * n, n) == 0);
      CHECK(std::memcmp(one_scales.data(), scales.data() + b * groups, groups * sizeof(float)) == 0);
      if (layout.has_min) CHECK(std::memcmp(one_mins.data(), mins.data() + b * groups, groups * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a raw tensor finds its rows") {
  std::vector<std::byte> data(3 * row_bytes(QuantType::q4_1, 64));
  const RawTensor tensor{"w", QuantType::q4_1, 3, 64, data};
  CHECK(row_bytes(QuantType::q4_1, 64) == 40);
  CHECK(tensor.row(2) - tensor.row(0) == 80);
}

}  // namespace
}  // namespace heddle::device
