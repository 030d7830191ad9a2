#pragma once
// How much work goes into a chunk: 10 to 50 us, so that the loop gets its turn and a preempted helper holds up little,
// but no less than handing it out is worth; and several chunks a thread, so that none waits long for the last. Costs
// are estimates in nanoseconds; they set the pace, never a result. Pure.
#include <algorithm>
#include <cstdint>

#include "cpu/isa.h"

namespace heddle::cpu {

inline constexpr double kMinChunkNs = 2'000;
inline constexpr double kMaxChunkNs = 40'000;

// The wanted cost of a chunk of a command that costs `total_ns` on one thread.
constexpr double chunk_cost(double total_ns, uint32_t n_threads) {
  return std::clamp(total_ns / (4.0 * n_threads), kMinChunkNs, kMaxChunkNs);
}

// How much longer than with AVX-512 a kernel of this set takes.
constexpr double slowness(Isa isa) { return isa == Isa::avx512 ? 1.0 : isa == Isa::avx2 ? 1.8 : 20.0; }

// Rows in a chunk. Whole tiles of 16 where there are many: neighbours in a tile share cache lines.
constexpr uint32_t rows_per_chunk(uint32_t rows, double ns_per_row, uint32_t n_threads) {
  const double cost = chunk_cost(rows * ns_per_row, n_threads);
  const double wanted = std::clamp(cost / ns_per_row, 1.0, static_cast<double>(std::max(rows, 1u)));
  const auto n = static_cast<uint32_t>(wanted);
  return n >= 16 ? n / 16 * 16 : n;
}

}  // namespace heddle::cpu
