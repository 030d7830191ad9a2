#include "cpu/pack_linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "cpu/pack_format.h"
#include "cpu/pack_panel.h"

namespace heddle::cpu {
namespace {

using device::LinearSource;
using device::RawTensor;

// The stack of a source's parts, addressed by output row.
class Stack {
 public:
  explicit Stack(const LinearSource& source) : source_(source) {
    for (const RawTensor& part : source.parts) {
      first_row_.push_back(rows_);
      rows_ += part.rows;
    }
  }
  uint32_t rows() const { return rows_; }
  const RawTensor& part(uint32_t output_row) const { return source_.parts[index(stacked(output_row))]; }
  const std::byte* row(uint32_t output_row) const {
    const uint32_t at = stacked(output_row);
    const size_t i = index(at);
    return source_.parts[i].row(at - first_row_[i]);
  }

 private:
  uint32_t stacked(uint32_t output_row) const {
    return source_.row_order.empty() ? output_row : source_.row_order[output_row];
  }
  size_t index(uint32_t stacked_row) const {
    HEDDLE_CHECK_OP(stacked_row, <, rows_);
    const auto after = std::upper_bound(first_row_.begin(), first_row_.end(), stacked_row);
    return static_cast<size_t>(after - first_row_.begin()) - 1;
  }

  const LinearSource& source_;
  std::vector<uint32_t> first_row_;
  uint32_t rows_ = 0;
};

Result<void> check_parts(const LinearSource& source) {
  HEDDLE_CHECK(!source.parts.empty());
  const RawTensor& first = source.parts.front();
  for (const RawTensor& part : source.parts) {
    if (part.cols != first.cols) {
      return fail(fmt::format("tensor {}: {} columns, but {}, with which it is stacked, has {}", part.name, part.cols,
                              first.name, first.cols));
    }
    const device::QuantLayout& layout = device::quant_layout(part.type);
    if (part.cols == 0 || part.cols % layout.block_weights != 0) {
      return fail(fmt::format("tensor {}: {} columns are no multiple of {}, the block of {}", part.name, part.cols,
                              layout.block_weights, layout.name));
    }
    if (part.rows == 0 || part.data.size() != part.rows * device::row_bytes(part.type, part.cols)) {
      return fail(fmt::format("tensor {}: {} bytes for {} x {} weights of {}", part.name, part.data.size(), part.rows,
                              part.cols, layout.name));
    }
  }
  return {};
}

}  // namespace

Result<PackedLinear> PackedLinear::plan(const LinearSource& source, device::Compute compute, WeightMemory& memory) {
  if (auto checked = check_parts(source); !checked) return tl::unexpected(checked.error());
  const Stack stack(source);
  HEDDLE_CHECK(source.row_order.empty() || source.row_order.size() == stack.rows());
  PackedLinear packed;
  packed.rows_ = stack.rows();
  packed.cols_ = source.parts.front().cols;
  for (uint32_t row = 0; row < packed.rows_; ++row) {
    const device::QuantType type = stack.part(row).type;
    if (packed.segments_.empty() || packed.segments_.back().source_type != type) {
      packed.segments_.push_back({.source_type = type, .format = pack_format(type, compute), .first_row = row});
    }
    ++packed.segments_.back().rows;
  }
  for (PackSegment& segment : packed.segments_) {
    segment.first_panel = packed.n_panels_;
    segment.n_panels = (segment.rows + kPanelRows - 1) / kPanelRows;
    segment.panel_bytes = pack_sizes(segment.format, packed.cols_).panel;
    segment.offset = packed.bytes_;
    packed.n_panels_ += segment.n_panels;
    packed.bytes_ += segment.n_panels * segment.panel_bytes;
    (is_float(segment.format.codes) ? packed.reads_floats_ : packed.reads_cells_) = true;
  }
  auto data = memory.allocate(packed.bytes_);
  if (!data) return tl::unexpected(data.error());
  packed.data_ = *data;
  return packed;
}

void PackedLinear::pack_panels(const LinearSource& source, uint32_t first, uint32_t last) {
  HEDDLE_CHECK_OP(last, <=, n_panels_);
  const Stack stack(source);
  HEDDLE_CHECK_OP(stack.rows(), ==, rows_);
  PackScratch scratch;
  for (const PackSegment& segment : segments_) {
    const uint32_t end = std::min(last, segment.first_panel + segment.n_panels);
    for (uint32_t panel = std::max(first, segment.first_panel); panel < end; ++panel) {
      const uint32_t in_segment = panel - segment.first_panel;
      const std::byte* rows[kPanelRows];
      const uint32_t n = std::min(kPanelRows, segment.rows - in_segment * kPanelRows);
      for (uint32_t r = 0; r < n; ++r) rows[r] = stack.row(segment.first_row + in_segment * kPanelRows + r);
      pack_panel(segment.format, segment.source_type, {rows, n}, cols_, scratch,
                 data_ + segment.offset + in_segment * segment.panel_bytes);
    }
  }
}

void PackedLinear::dequantize_row(uint32_t n, float* out) const {
  HEDDLE_CHECK_OP(n, <, rows_);
  const auto after =
      std::find_if(segments_.begin(), segments_.end(), [n](const PackSegment& s) { return n < s.first_row + s.rows; });
  const PackSegment& segment = *after;
  const uint32_t row = n - segment.first_row;
  unpack_row(segment.format, data_ + segment.offset + row / kPanelRows * segment.panel_bytes, row % kPanelRows, cols_,
             out);
}

}  // namespace heddle::cpu
