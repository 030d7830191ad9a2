#pragma once
// What serving a model will take, by arithmetic and before anything is loaded. The same numbers then size the KV pool.
// A plan that does not fit is refused with the flag to change.
#include <cstdint>
#include <optional>
#include <string>

#include "app/memory_limit.h"
#include "base/result.h"

namespace heddle::app {

struct MemoryRequest {
  uint64_t weights = 0;        // bytes
  uint64_t kv_per_token = 0;   // bytes over all layers
  uint64_t activations = 0;    // bytes, all steps in flight of an engine
  uint32_t n_engines = 1;      // each with a KV cache and activations of its own; they share the weights
  uint32_t model_context = 0;  // the model's own longest sequence
  std::optional<uint32_t> max_model_len;
  uint32_t max_num_seqs = 0;
  uint32_t block_size = 0;
  std::optional<uint64_t> kv_cache_memory_bytes;  // of an engine, as is:
  std::optional<uint32_t> num_blocks;
};

struct MemoryPlan {
  uint64_t weights = 0, kv = 0, activations = 0;  // of all engines
  uint32_t n_engines = 1;
  MemoryLimit limit;
  uint32_t block_size = 0;
  uint32_t n_blocks = 0;  // of an engine
  uint32_t max_model_len = 0;
  std::string why;  // what decided the size of the KV cache
  uint64_t total() const { return weights + kv + activations; }
  std::string describe() const;  // several lines, for the start-up log and --dry-run
};

Result<MemoryPlan> plan_memory(const MemoryRequest& request, const MemoryLimit& limit);

}  // namespace heddle::app
