#pragma once
// PackedLinear: a weight matrix as the CPU kernels read it (layout: pack_layout.h), the only copy after loading. Made
// in two steps: plan() checks the source and allocates; pack_panels() fills ranges of panels, which may run on several
// threads at once. After that it is immutable and any thread may read it. The bytes lie in the device's WeightMemory,
// which outlives it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "cpu/pack_layout.h"
#include "cpu/weight_memory.h"
#include "device/device.h"
#include "device/quant.h"

namespace heddle::cpu {

// Output rows [first_row, first_row + rows) that come from parts of one type. Parts of other types begin a new segment,
// and so a new panel: the last panel of a segment may be short (its missing rows are zeros).
struct PackSegment {
  device::QuantType source_type;
  PackFormat format;
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t first_panel = 0;
  uint32_t n_panels = 0;
  size_t panel_bytes = 0;
  size_t offset = 0;  // of the first panel, from data()
};

class PackedLinear {
 public:
  // Fails, naming the tensor, when parts differ in cols, or a quantised part's cols are not a multiple of 32.
  // Compute::f32 dequantises everything to f32. The bias is not looked at.
  static Result<PackedLinear> plan(const device::LinearSource& source, device::Compute compute, WeightMemory& memory);
  // Fills panels [first, last); the source is the one that was planned.
  void pack_panels(const device::LinearSource& source, uint32_t first, uint32_t last);

  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  uint32_t n_panels() const { return n_panels_; }
  size_t bytes() const { return bytes_; }
  bool reads_cells() const { return reads_cells_; }    // some segment multiplies with quantised activations
  bool reads_floats() const { return reads_floats_; }  // some segment multiplies with f32 activations
  std::span<const PackSegment> segments() const { return segments_; }
  const std::byte* data() const { return data_; }

  // Weights of output row n as f32: what the file's bytes stand for. out: [cols].
  void dequantize_row(uint32_t n, float* out) const;

 private:
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint32_t n_panels_ = 0;
  size_t bytes_ = 0;
  bool reads_cells_ = false;
  bool reads_floats_ = false;
  std::vector<PackSegment> segments_;
  std::byte* data_ = nullptr;  // in the WeightMemory
};

}  // namespace heddle::cpu
