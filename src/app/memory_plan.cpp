#include "app/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::app {
namespace {

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

uint64_t blocks_for(uint64_t tokens, uint32_t block_size) { return (tokens + block_size - 1) / block_size; }

}  // namespace

std::string MemoryPlan::describe() const {
  const uint64_t tokens = uint64_t{n_blocks} * block_size;
  const std::string engines = n_engines == 1 ? std::string() : fmt::format("{} engines x ", n_engines);
  std::string text = fmt::format(
      "memory plan: weights {}, KV cache {} ({}{} blocks of {} tokens = {} tokens, {}), activations {}; total {}",
      megabytes(weights), megabytes(kv), engines, n_blocks, block_size, tokens * n_engines, why, megabytes(activations),
      megabytes(total()));
  if (limit.bytes > 0) text += fmt::format(" of {} ({})", megabytes(limit.bytes), limit.reason);
  text += fmt::format("\nlongest sequence {} tokens; {:.1f} such sequences fit at once{}", max_model_len,
                      static_cast<double>(tokens) / max_model_len, n_engines == 1 ? "" : " in each engine");
  return text;
}

Result<MemoryPlan> plan_memory(const MemoryRequest& request, const MemoryLimit& limit) {
  if (request.block_size % 16 != 0)
    return fail(fmt::format("--block-size must be a multiple of 16, got {}", request.block_size));
  if (request.max_model_len && *request.max_model_len > request.model_context)
    return fail(fmt::format("--max-model-len {} is more than the model's context of {} tokens", *request.max_model_len,
                            request.model_context));
  MemoryPlan plan;
  plan.weights = request.weights;
  plan.n_engines = request.n_engines;
  plan.activations = request.activations * request.n_engines;
  plan.limit = limit;
  plan.block_size = request.block_size;
  plan.max_model_len = request.max_model_len.value_or(request.model_context);
  const uint64_t block_bytes = request.kv_per_token * request.block_size;
  const uint64_t wanted =
      blocks_for(plan.max_model_len, request.block_size) * request.max_num_seqs;  // every sequence at its longest
  uint64_t blocks = 0;
  if (request.num_blocks) {
    blocks = *request.num_blocks;
    plan.why = "--num-gpu-blocks-override";
  } else if (request.kv_cache_memory_bytes) {
    blocks = *request.kv_cache_memory_bytes / block_bytes;
    plan.why = "--kv-cache-memory-bytes";
    if (blocks == 0)
      return fail(fmt::format("--kv-cache-memory-bytes {} is less than one block of {} tokens takes ({} bytes)",
                              *request.kv_cache_memory_bytes, request.block_size, block_bytes));
  } else {
    const uint64_t half = limit.bytes / 2 / request.n_engines / block_bytes;
    blocks = limit.bytes == 0 ? wanted : std::min(wanted, half);
    plan.why = blocks == wanted ? "max-num-seqs x max-model-len" : "half of the memory";
    if (blocks != wanted && request.n_engines > 1) plan.why += fmt::format(" among {} engines", request.n_engines);
  }
  blocks = std::min<uint64_t>(blocks, UINT32_MAX);
  const uint64_t capacity = blocks * request.block_size;
  if (!request.num_blocks && capacity < plan.max_model_len) {
    // A sequence of the promised length must fit. A length that nobody asked for is lowered, and said.
    if (request.max_model_len)
      return fail(
          fmt::format("--max-model-len {} needs {} of KV cache, and {} gives {}; lower --max-model-len to {} or raise "
                      "--kv-cache-memory-bytes",
                      plan.max_model_len, megabytes(request.kv_per_token * plan.max_model_len), plan.why,
                      megabytes(blocks * block_bytes), capacity));
    if (capacity == 0) return fail("there is no memory for a KV cache; free some, or set --kv-cache-memory-bytes");
    plan.max_model_len = static_cast<uint32_t>(capacity);
    plan.why += "; the longest sequence was lowered to it";
  }
  plan.n_blocks = static_cast<uint32_t>(blocks);
  plan.kv = blocks * block_bytes * request.n_engines;
  if (limit.bytes > 0 && plan.total() > limit.bytes) {
    const uint64_t fixed = plan.weights + plan.activations;
    const std::string have = fmt::format("the plan needs {} (weights {}, KV cache {}, activations {}), and {} is {}",
                                         megabytes(plan.total()), megabytes(plan.weights), megabytes(plan.kv),
                                         megabytes(plan.activations), limit.reason, megabytes(limit.bytes));
    if (fixed >= limit.bytes)
      return fail(fmt::format("{}; a smaller model is needed, or a lower --max-num-batched-tokens{}", have,
                              request.n_engines > 1 ? " or --data-parallel-size" : ""));
    return fail(fmt::format("{}; lower {} so that the KV cache takes at most {}{}", have,
                            request.num_blocks ? "--num-gpu-blocks-override" : "--kv-cache-memory-bytes",
                            megabytes((limit.bytes - fixed) / request.n_engines),
                            request.n_engines > 1 ? " in each engine" : ""));
  }
  return plan;
}

}  // namespace heddle::app
