#include "sched/config.h"

#include <fmt/format.h>

#include "sched/fair_share.h"

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
  if (!(config.watermark >= 0 && config.watermark < 1))
    return fail(fmt::format("--watermark must be at least 0 and below 1, got {}", config.watermark));
  if (!(config.residency_share >= 0 && config.residency_share <= 1))
    return fail(fmt::format("the share of blocks watched for their residency must be between 0 and 1, got {}",
                            config.residency_share));
  if (config.fair_quantum == 0) return fail("--fair-quantum must be at least 1");
  for (const auto& [tenant, weight] : config.tenant_weights)
    if (weight == 0 || weight > fair::kMaxWeight)
      return fail(
          fmt::format("--tenant-weight of {} must be between 1 and {}, got {}", tenant, fair::kMaxWeight, weight));
  if (config.max_long_partial_prefills > 0 && config.long_prefill_token_threshold == 0)
    return fail("--max-long-partial-prefills needs --long-prefill-token-threshold, which says what is long");
  if (!config.enable_chunked_prefill && config.max_num_batched_tokens < config.max_model_len)
    return fail(
        fmt::format("--max-num-batched-tokens ({}) must be at least --max-model-len ({}) without chunked prefill",
                    config.max_num_batched_tokens, config.max_model_len));
  return {};
}

}  // namespace heddle::sched
