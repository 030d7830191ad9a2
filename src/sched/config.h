#pragma once
#include <cstdint>

namespace heddle::sched {

struct Config {
  uint32_t max_num_seqs = 128;
  uint32_t max_num_batched_tokens = 2048;  // rows of one step
  uint32_t max_model_len = 2048;
  uint32_t block_size = 16;
  uint32_t n_blocks = 0;
  uint32_t long_prefill_token_threshold = 0;  // 0: off
  bool enable_prefix_caching = true;
  uint64_t prefix_hash_seed = 0;
};

}  // namespace heddle::sched
