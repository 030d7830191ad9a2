#include "model/model.h"

#include <algorithm>

#if defined(__SANITIZE_THREAD__)
#include <tbb/global_control.h>
#endif

namespace heddle::model {

const FamilyBlocks& blocks_of(Family family) {
  switch (family) {
    case Family::llama:
      return llama_blocks;
    case Family::qwen2:
      return qwen2_blocks;
    case Family::qwen3:
      return qwen3_blocks;
    case Family::gemma3:
      break;
  }
  return gemma3_blocks;
}

uint64_t Model::weight_bytes() const {
  uint64_t sum = decoder_.embedding->bytes() + (decoder_.own_head ? decoder_.own_head->bytes() : 0);
  for (const DecoderLayer& layer : decoder_.layers)
    sum += layer.qkv->bytes() + layer.attention_output->bytes() + layer.gate_up->bytes() + layer.down->bytes();
  return sum;
}

Result<std::unique_ptr<Model>> load_model(const GgufSet& files, const ModelConfig& config, device::Device& device,
                                          uint32_t n_positions) {
#if defined(__SANITIZE_THREAD__)
  // The library of oneTBB is not instrumented: the thread sanitizer would take its hand-overs for races.
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
#endif
  const FamilyBlocks& family = blocks_of(config.family);
  Decoder decoder;
  Weights weights(files, device, n_positions);
  family.declare(weights, config, decoder);
  if (auto loaded = weights.load(); !loaded) return tl::unexpected(std::move(loaded.error()));
  return std::make_unique<Model>(config, family, std::move(decoder));
}

MemoryNeed memory_need(const GgufSet& files, const ModelConfig& config, const device::Device& device,
                       device::Compute compute, uint32_t max_rows, uint32_t max_head_rows) {
  MemoryNeed need;
  files.each_tensor([&](const GgufTensor& tensor) {
    const uint64_t elements = uint64_t{tensor.rows()} * tensor.cols();
    need.weights += compute == device::Compute::f32 ? elements * sizeof(float) : tensor.data().size();
  });
  const uint64_t element = compute == device::Compute::f32 ? sizeof(float) : sizeof(uint16_t);
  need.kv_per_token = 2 * element * config.kv_size() * config.n_layers;
  need.activations = activation_bytes(config, device, max_rows, max_head_rows);
  return need;
}

}  // namespace heddle::model
