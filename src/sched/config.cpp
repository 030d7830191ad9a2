#include "sched/config.h"

#include <fmt/format.h>

namespace heddle::sched {

Result<void> validate(const Config& config) {
  if (config.max_num_seqs == 0) return fail("--max-num-seqs must be at least 1");
  if (config.block_size == 0) return fail("--block-size must be at least 1");
  if (config.max_model_len < 2)
    return fail(fmt::format("--max-model-len must be at least 2, got {}", config.max_model_len));
  if (config.n_blocks == 0)
    return fail("the KV cache has no blocks: raise --kv-cache-memory-bytes or --num-gpu-blocks-override");
  if (config.max_num_batched_tokens < config.max_num_seqs)
    return fail(fmt::format("--max-num-batched-tokens ({}) must be at least --max-num-seqs ({})",
                            config.max_num_batched_tokens, config.max_num_seqs));
  if (!config.enable_chunked_prefill && config.max_num_batched_tokens < config.max_model_len)
    return fail(
        fmt::format("--max-num-batched-tokens ({}) must be at least --max-model-len ({}) without chunked prefill",
                    config.max_num_batched_tokens, config.max_model_len));
  return {};
}

}  // namespace heddle::sched
