#pragma once
// The storage formats of weights that heddle computes with, and a weight as the file holds it. A format stores a row as
// consecutive blocks of `block_weights` weights in `block_bytes` bytes. Layout facts: GGUF (ggml) block formats,
// little-endian. Plain values; any thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle::device {

enum class QuantType : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k };
inline constexpr size_t kQuantTypes = 13;

struct QuantLayout {
  std::string_view name;   // as people write it: "Q4_K"
  uint32_t block_weights;  // a row's length must be a multiple of this
  uint32_t block_bytes;
};

inline constexpr std::array<QuantLayout, kQuantTypes> kQuantLayouts = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},
    {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
}};

constexpr const QuantLayout& quant_layout(QuantType type) { return kQuantLayouts[static_cast<size_t>(type)]; }
constexpr std::string_view quant_name(QuantType type) { return quant_layout(type).name; }
constexpr bool is_float(QuantType type) { return quant_layout(type).block_weights == 1; }

// Bytes of a row of `cols` weights; `cols` is a multiple of the format's block.
constexpr size_t row_bytes(QuantType type, uint64_t cols) {
  const QuantLayout& layout = quant_layout(type);
  return static_cast<size_t>(cols / layout.block_weights * layout.block_bytes);
}

// A weight matrix [rows, cols] as it lies in the file, row after row: w[r][c], y = W x. A vector has rows = 1. The
// bytes belong to the mapped file, which must outlive this. `data` need not be aligned for its type.
struct RawTensor {
  std::string name;
  QuantType type = QuantType::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::span<const std::byte> data;  // rows * row_bytes(type, cols)

  const std::byte* row(uint32_t r) const { return data.data() + r * row_bytes(type, cols); }
};

}  // namespace heddle::device
