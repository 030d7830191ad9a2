#include "cpu/pack_linear.h"

#include <doctest/doctest.h>

#include <numeric>

#include "cpu/linear_harness.h"
#include "cpu/pack_format.h"
#include "device/dequantize.h"

using namespace heddle;
using namespace heddle::cpu;
using namespace heddle::cpu::test;
using device::Compute;

namespace {

std::vector<float> reference_row(const device::RawTensor& raw, uint32_t row) {
  std::vector<float> out(raw.cols);
  device::dequantize_row(raw.type, raw.row(row), raw.cols, out.data());
  return out;
}

std::vector<float> packed_row(const PackedLinear& packed, uint32_t row) {
  std::vector<float> out(packed.cols());
  packed.dequantize_row(row, out.data());
  return out;
}

}  // namespace

TEST_CASE("a packed row dequantises to what the file's bytes stand for, in every format") {
  for (const QuantType type : kAllTypes) {
    for (const Fill fill : {Fill::random, Fill::zeros, Fill::ones}) {
      for (const float scale : {0x1p-8f, 0x1p-20f, 60000.0f}) {
        CAPTURE(device::quant_name(type));
        const Weights w = make_weights(type, 21, 512, 11, fill, scale);
        for (const Compute compute : {Compute::automatic, Compute::f32}) {
          const auto packed = pack({{w.raw}, {}, {}}, compute);
          for (uint32_t row = 0; row < 21; ++row) REQUIRE(packed_row(packed->linear, row) == reference_row(w.raw, row));
        }
      }
    }
  }
}

TEST_CASE("stacked parts of different formats keep their rows, in the order asked for") {
  const Weights q = make_weights(QuantType::q4_k, 35, 256, 1), k = make_weights(QuantType::q4_k, 10, 256, 2),
                v = make_weights(QuantType::q6_k, 19, 256, 3), u = make_weights(QuantType::f16, 5, 256, 4);
  device::LinearSource source{{q.raw, k.raw, v.raw, u.raw}, {}, {}};
  const auto expected = [&](uint32_t stacked) {
    for (const Weights* part : {&q, &k, &v, &u}) {
      if (stacked < part->raw.rows) return reference_row(part->raw, stacked);
      stacked -= part->raw.rows;
    }
    return std::vector<float>{};
  };
  SUBCASE("as stacked") {
    const auto packed = pack(source);
    CHECK(packed->linear.segments().size() == 3);
    CHECK(packed->linear.reads_cells());
    CHECK(packed->linear.reads_floats());
    for (uint32_t row = 0; row < 69; ++row) CHECK(packed_row(packed->linear, row) == expected(row));
  }
  SUBCASE("shuffled") {
    source.row_order.resize(69);
    std::iota(source.row_order.begin(), source.row_order.end(), 0u);
    std::shuffle(source.row_order.begin(), source.row_order.end(), std::mt19937(5));
    const auto packed = pack(source);
    for (uint32_t row = 0; row < 69; ++row) CHECK(packed_row(packed->linear, row) == expected(source.row_order[row]));
  }
}

TEST_CASE("packing in ranges gives the same bytes as packing at once") {
  const Weights w = make_weights(QuantType::q5_k, 100, 512, 6), more = make_weights(QuantType::q3_k, 30, 512, 7);
  const device::LinearSource source{{w.raw, more.raw}, {}, {}};
  const auto whole = pack(source);
  WeightMemory memory;
  PackedLinear parts = PackedLinear::plan(source, Compute::automatic, memory).value();
  for (const auto& [first, last] : {std::pair{7u, 9u}, {0u, 3u}, {3u, 7u}}) parts.pack_panels(source, first, last);
  REQUIRE(parts.n_panels() == 9);
  REQUIRE(parts.bytes() == whole->linear.bytes());
  CHECK(std::memcmp(parts.data(), whole->linear.data(), parts.bytes()) == 0);
}

TEST_CASE("packed weights take little more than the file's") {
  const auto ratio = [](QuantType type) {
    const size_t file = 4096 * device::row_bytes(type, 4096);
    return static_cast<double>(packed_bytes(type, 4096, 4096, Compute::automatic)) / static_cast<double>(file);
  };
  for (const QuantType type : {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q4_0, QuantType::q4_1,
                               QuantType::q5_0, QuantType::q5_1, QuantType::q8_0}) {
    CHECK(ratio(type) == 1.0);
  }
  CHECK(ratio(QuantType::q4_k) < 1.03);
  CHECK(ratio(QuantType::q5_k) < 1.03);
  CHECK(ratio(QuantType::q6_k) < 1.04);
  const Weights w = make_weights(QuantType::q6_k, 33, 512, 8);
  CHECK(pack({{w.raw}, {}, {}})->linear.bytes() == packed_bytes(QuantType::q6_k, 33, 512, Compute::automatic));
}

TEST_CASE("a source that cannot be packed is refused by the tensor's name") {
  WeightMemory memory;
  const Weights a = make_weights(QuantType::q4_0, 4, 64, 1), b = make_weights(QuantType::q4_0, 4, 96, 2);
  const auto refusal = [&memory](std::vector<device::RawTensor> parts) {
    auto planned = PackedLinear::plan({std::move(parts), {}, {}}, Compute::automatic, memory);
    return planned ? std::string("accepted") : planned.error().message;
  };
  device::RawTensor first = a.raw, second = b.raw;
  first.name = "blk.0.attn_q.weight";
  second.name = "blk.0.attn_k.weight";
  CHECK(refusal({first, second}) ==
        "tensor blk.0.attn_k.weight: 96 columns, but blk.0.attn_q.weight, with which it is stacked, has 64");
  first.cols = 48;
  CHECK(refusal({first}) == "tensor blk.0.attn_q.weight: 48 columns are no multiple of 32, the block of Q4_0");
  first.cols = 64;
  first.rows = 5;
  CHECK(refusal({first}) == "tensor blk.0.attn_q.weight: 144 bytes for 5 x 64 weights of Q4_0");
}

TEST_CASE("weight memory is aligned, zero-filled, and large blocks do not disturb small ones") {
  WeightMemory memory;
  std::vector<std::byte*> blocks;
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{70} << 20, size_t{64}, size_t{3} << 20}) {
    std::byte* at = memory.allocate(bytes).value();
    CHECK(reinterpret_cast<uintptr_t>(at) % 64 == 0);
    CHECK(at[0] == std::byte{0});
    CHECK(at[bytes - 1] == std::byte{0});
    at[0] = at[bytes - 1] = static_cast<std::byte>(blocks.size() + 1);
    blocks.push_back(at);
  }
  for (size_t i = 0; i < blocks.size(); ++i) CHECK(blocks[i][0] == static_cast<std::byte>(i + 1));
  CHECK(memory.allocated() >= (size_t{73} << 20));
}
