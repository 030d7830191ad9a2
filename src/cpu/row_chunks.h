#pragma once
// A command over the rows of a tensor, in chunks of equal height but for the last. Pure.
#include <algorithm>
#include <cstdint>

#include "cpu/grain.h"
#include "cpu/team.h"

namespace heddle::cpu {

inline constexpr double kQuantiseNs = 0.25;  // a value, AVX-512
inline constexpr double kRowNs = 30;         // a row, whatever is done to it

struct RowChunks {
  uint32_t n, step;
  uint32_t chunks() const { return (n + step - 1) / step; }
  uint32_t first(uint32_t chunk) const { return chunk * step; }
  uint32_t last(uint32_t chunk) const { return std::min(n, (chunk + 1) * step); }
};

inline RowChunks chunk_rows(uint32_t n, double ns_per_row, uint32_t n_threads) {
  return {n, std::max(rows_per_chunk(n, ns_per_row, n_threads), (n + Team::kMaxChunks - 1) / Team::kMaxChunks)};
}

}  // namespace heddle::cpu
