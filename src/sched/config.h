#pragma once
// What bounds a scheduler. Filled from flags and from the memory plan; constant afterwards.
#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace heddle::sched {

enum class PolicyKind : uint8_t { fcfs, priority, fair };

struct Config {
  uint32_t max_num_seqs = 128;
  uint32_t max_num_batched_tokens = 2048;  // rows of one step
  uint32_t max_model_len = 2048;
  uint32_t block_size = 16;
  uint32_t n_blocks = 0;
  uint32_t long_prefill_token_threshold = 0;  // most rows of one prompt in a step while others are there; 0: off
  uint32_t max_long_partial_prefills = 0;     // prompts longer than the threshold computed side by side; 0: no cap
  PolicyKind policy = PolicyKind::fcfs;
  uint32_t fair_quantum = 32;  // tokens that a waiting tenant of weight 1 is owed more with each step
  std::map<std::string, uint32_t, std::less<>> tenant_weights;  // of tenants other than 1
  double watermark = 0;        // share of the blocks kept free when admitting beside running sequences
  double residency_share = 0;  // of the blocks watched by the residency sampler
  uint64_t residency_seed = 0;
  uint32_t n_lookahead = 0;  // positions past the planned rows that a sequence's blocks must cover
  bool enable_chunked_prefill = true;
  bool enable_prefix_caching = true;
  uint64_t prefix_hash_seed = 0;
  std::string model_fingerprint;  // first field of every prefix domain
};

// Names the flag that is wrong.
Result<void> validate(const Config& config);

}  // namespace heddle::sched
