#pragma once
// The seam between linear.cpp / act_quant.cpp and the sources that are compiled once per instruction set
// (linear_isa.cpp, act_quant_isa.cpp). Plain structs, no inline functions, no other includes.
#include <cstddef>
#include <cstdint>

#include "cpu/act_cell.h"
#include "cpu/pack_layout.h"

namespace heddle::cpu {

// Panels of one format against rows [first_row, last_row) of the input. See linear.h for the arithmetic.
struct LinearRun {
  PackFormat format;
  const uint8_t* panels;
  size_t panel_bytes;
  uint32_t n_columns;    // outputs in these panels; all but the last panel have 16
  uint32_t cols;         // K
  const ActCell* cells;  // of the whole tensor
  const float* x;        // row 0
  size_t ldx;
  uint32_t first_row;
  uint32_t last_row;
  float* out;  // row 0, at the first panel's first column; likewise the next three
  size_t ldo;
  const float* bias;      // or null
  const float* residual;  // or null
  size_t ldr;
};

// Rows of x, `ldx` apart, to the cells of rows [first, last).
struct QuantiseRun {
  const float* x;  // row `first`
  size_t ldx;
  uint32_t n_groups;
  uint32_t first;
  uint32_t last;
  ActCell* cells;  // of the whole tensor
};

namespace scalar {
void linear_run(const LinearRun& run);
void quantise_run(const QuantiseRun& run);
}  // namespace scalar
namespace avx2 {
void linear_run(const LinearRun& run);
void quantise_run(const QuantiseRun& run);
}  // namespace avx2
namespace avx512 {
void linear_run(const LinearRun& run);
void quantise_run(const QuantiseRun& run);
}  // namespace avx512

}  // namespace heddle::cpu
