#pragma once
// Whether a prompt can be served at all: decided before it is queued, from constants alone.
#include <algorithm>
#include <cstdint>

#include "sched/config.h"

namespace heddle::sched {

constexpr uint32_t blocks_for(uint64_t n_tokens, uint32_t block_size) {
  return static_cast<uint32_t>((n_tokens + block_size - 1) / block_size);
}

// Positions that the blocks of a sequence must cover to compute rows below n_positions: room for drafts, but none past
// the model's length.
constexpr uint64_t covered_positions(uint64_t n_positions, uint32_t n_lookahead, uint32_t max_model_len) {
  return std::min<uint64_t>(n_positions + n_lookahead, std::max<uint64_t>(n_positions, max_model_len));
}

struct BlockDemand {
  uint32_t needed = 0, available = 0;
  bool never_fits() const { return needed > available; }
};

inline BlockDemand demand_of(uint32_t n_prompt, const Config& config) {
  const uint64_t covered = covered_positions(n_prompt, config.n_lookahead, config.max_model_len);
  return {blocks_for(covered, config.block_size), config.n_blocks};
}

// Tokens at which a sequence ends with reason length: what was asked for, the model's length, or the pool, whichever
// comes first. The last token needs no block, since its row is never computed.
inline uint32_t limit_of(uint32_t n_prompt, uint32_t max_tokens, const Config& config) {
  const uint64_t pool = uint64_t{config.n_blocks} * config.block_size;
  const uint64_t computable = config.max_model_len <= pool ? pool : pool - std::min<uint64_t>(pool, config.n_lookahead);
  return static_cast<uint32_t>(
      std::min({uint64_t{n_prompt} + max_tokens, uint64_t{config.max_model_len}, computable + 1}));
}

}  // namespace heddle::sched
