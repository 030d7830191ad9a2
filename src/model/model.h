#pragma once
// A model: canonical weights on a device and the forward pass of its family. Owner: the runner. Immutable after
// loading; forward() is called on the loop thread. Which families there are: family.h.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/family.h"
#include "model/forward.h"
#include "model/gguf_set.h"

namespace heddle::model {

class Model {
 public:
  Model(ModelConfig config, const FamilyBlocks& family, Decoder decoder)
      : config_(std::move(config)), family_(family), decoder_(std::move(decoder)) {}

  // Appends one step: KV of every row is stored, logits are made for the batch's head rows. Returns them,
  // [head rows, vocab_size]; without head rows nothing past the last layer's KV is computed and the tensor has no rows.
  device::Tensor forward(Forward& step) const { return family_.forward(step, config_, decoder_); }

  const ModelConfig& config() const { return config_; }
  std::span<const device::KvSpec> kv() const { return decoder_.kv; }  // a layer each
  uint64_t weight_bytes() const;                                      // packed matrices

 private:
  ModelConfig config_;
  const FamilyBlocks& family_;
  Decoder decoder_;
};

// Checks every tensor of the files against the family, packs the weights (in parallel) and gives the files' pages back.
// `config` is what read_config said of the same files; rotary tables cover n_positions. Fails with one line that lists
// missing, misshaped or left-over tensors.
Result<std::unique_ptr<Model>> load_model(const GgufSet& files, const ModelConfig& config, device::Device& device,
                                          uint32_t n_positions);

// What a model will take, by arithmetic, before anything is loaded.
struct MemoryNeed {
  uint64_t weights = 0;       // packed; about the file's bytes, or four bytes a weight with Compute::f32
  uint64_t kv_per_token = 0;  // all layers; f16, or f32 with Compute::f32
  uint64_t activations = 0;   // the arena: max_rows rows, max_head_rows of them with logits
};
MemoryNeed memory_need(const GgufSet& files, const ModelConfig& config, const device::Device& device,
                       device::Compute compute, uint32_t max_rows, uint32_t max_head_rows);
size_t activation_bytes(const ModelConfig& config, const device::Device& device, uint32_t max_rows,
                        uint32_t max_head_rows);

}  // namespace heddle::model
