#pragma once
// Exact dequantisation: the values that a file's bytes stand for, as float32, by the formula and the order of
// operations of the reference (ggml's dequantize_row_*; the `gguf` Python package agrees bit for bit). It defines what
// `--compute f32` computes with. Pure; any thread; never fails (types and sizes were checked when the file was opened).
#include <cstddef>
#include <cstdint>

#include "device/quant.h"

namespace heddle::device {

// The `cols` weights stored at `row`; `cols` is a multiple of the format's block. out: [cols].
void dequantize_row(QuantType type, const std::byte* row, uint32_t cols, float* out);

}  // namespace heddle::device
