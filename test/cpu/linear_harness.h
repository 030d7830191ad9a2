#pragma once
// Weights and activations for the linear layer's tests: blocks of any format with random codes and chosen scales.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "cpu/act_quant.h"
#include "cpu/linear.h"
#include "cpu/pack_linear.h"
#include "device/block_formats.h"
#include "device/quant.h"

namespace heddle::cpu::test {

using device::QuantType;

inline constexpr QuantType kAllTypes[] = {QuantType::f32,  QuantType::f16,  QuantType::bf16, QuantType::q4_0,
                                          QuantType::q4_1, QuantType::q5_0, QuantType::q5_1, QuantType::q8_0,
                                          QuantType::q2_k, QuantType::q3_k, QuantType::q4_k, QuantType::q5_k,
                                          QuantType::q6_k};

// Where a format's f16 scales lie in its block; -1: none.
struct HalfOffsets {
  int scale, min;
};
inline HalfOffsets half_offsets(QuantType type) {
  namespace b = device::block;
  switch (type) {
    case QuantType::q4_0:
      return {b::Q4_0::kScale, -1};
    case QuantType::q4_1:
      return {b::Q4_1::kScale, b::Q4_1::kMin};
    case QuantType::q5_0:
      return {b::Q5_0::kScale, -1};
    case QuantType::q5_1:
      return {b::Q5_1::kScale, b::Q5_1::kMin};
    case QuantType::q8_0:
      return {b::Q8_0::kScale, -1};
    case QuantType::q2_k:
      return {b::Q2_K::kScale, b::Q2_K::kMin};
    case QuantType::q3_k:
      return {b::Q3_K::kScale, -1};
    case QuantType::q4_k:
      return {b::Q4_K::kScale, b::Q4_K::kMin};
    case QuantType::q5_k:
      return {b::Q5_K::kScale, b::Q5_K::kMin};
    case QuantType::q6_k:
      return {b::Q6_K::kScale, -1};
    case QuantType::f32:
    case QuantType::f16:
    case QuantType::bf16:
      break;
  }
  return {-1, -1};
}

enum class Fill { random, zeros, ones };  // of the codes' and integer scales' bits

// Owns the bytes behind a RawTensor.
struct Weights {
  std::vector<std::byte> bytes;
  device::RawTensor raw;
};

// Scales are uniform in magnitude [scale/2, scale], of random sign.
inline Weights make_weights(QuantType type, uint32_t rows, uint32_t cols, uint32_t seed, Fill fill = Fill::random,
                            float scale = 0x1p-8f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(scale / 2, scale);
  const auto value = [&] { return random() & 1u ? uniform(random) : -uniform(random); };
  Weights w;
  w.bytes.resize(rows * device::row_bytes(type, cols));
  const size_t block = device::quant_layout(type).block_bytes;
  for (std::byte& b : w.bytes) {
    b = fill == Fill::random ? static_cast<std::byte>(random() & 255u)
        : fill == Fill::ones ? std::byte{255}
                             : std::byte{0};
  }
  const HalfOffsets halves = half_offsets(type);
  for (size_t at = 0; at < w.bytes.size(); at += block) {
    if (type == QuantType::f32) {
      const float v = value();
      std::memcpy(&w.bytes[at], &v, 4);
    } else if (type == QuantType::f16 || type == QuantType::bf16) {
      const float v = value();
      const uint16_t half = type == QuantType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
      std::memcpy(&w.bytes[at], &half, 2);
    } else {
      const uint16_t d = f32_to_f16(value()), m = f32_to_f16(value());
      std::memcpy(&w.bytes[at + static_cast<size_t>(halves.scale)], &d, 2);
      if (halves.min >= 0) std::memcpy(&w.bytes[at + static_cast<size_t>(halves.min)], &m, 2);
    }
  }
  w.raw = {std::string(device::quant_name(type)), type, rows, cols, w.bytes};
  return w;
}

struct Packed {
  WeightMemory memory;
  PackedLinear linear;
};
inline std::unique_ptr<Packed> pack(const device::LinearSource& source,
                                    device::Compute compute = device::Compute::automatic) {
  auto packed = std::make_unique<Packed>();
  auto planned = PackedLinear::plan(source, compute, packed->memory);
  if (!planned) throw std::runtime_error(planned.error().message);
  packed->linear = std::move(*planned);
  packed->linear.pack_panels(source, 0, packed->linear.n_panels());
  return packed;
}

// Normal values with a few outliers, as hidden states have them. [rows, cols]
inline std::vector<float> make_activations(uint32_t rows, uint32_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.1f, 1.0f);
  std::vector<float> x(size_t{rows} * cols);
  for (float& v : x) v = normal(random) * (random() % 97 == 0 ? 40.0f : 1.0f);
  return x;
}

struct AlignedCells {
  struct Free {
    void operator()(ActCell* p) const { std::free(p); }
  };
  std::unique_ptr<ActCell, Free> data;
};
inline AlignedCells quantised(Isa isa, const std::vector<float>& x, uint32_t rows, uint32_t cols) {
  const size_t bytes = (act_bytes(rows, cols) + 63) / 64 * 64;
  AlignedCells cells{
      std::unique_ptr<ActCell, AlignedCells::Free>(static_cast<ActCell*>(std::aligned_alloc(64, bytes)))};
  std::memset(static_cast<void*>(cells.data.get()), 0xa5, bytes);
  quantise_rows(isa, x.data(), cols, cols, 0, rows, cells.data.get());
  return cells;
}

// The whole product, rows [0, m). Columns beyond N keep the guard value.
inline constexpr float kGuard = -12345.0f;
inline std::vector<float> product(Isa isa, const PackedLinear& w, const std::vector<float>& x, uint32_t m) {
  AlignedCells cells;
  if (w.reads_cells()) cells = quantised(isa, x, m, w.cols());
  const size_t ldo = w.rows() + 3;
  std::vector<float> out(m * ldo, kGuard);
  linear_tile(isa, w, 0, w.n_panels(), 0, m, {cells.data.get(), x.data(), w.cols()}, {.out = out.data(), .ldo = ldo});
  return out;
}

// Equal as numbers, or both NaN.
inline bool same(const std::vector<float>& a, const std::vector<float>& b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
  }
  return true;
}

}  // namespace heddle::cpu::test
