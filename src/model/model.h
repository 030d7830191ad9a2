#pragma once
// A model: canonical weights on a device and the forward pass of its family. Owner: the runner. Immutable after loading;
// forward() is called on the loop thread. Which families there are: family.h.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/gguf_set.h"

namespace heddle::model {

class Model {
 public:
  virtual ~Model() = default;

  // Appends one step: KV of every row is stored, logits are made for the batch's head rows. Returns them,
  // [head rows, vocab_size]; without head rows nothing past the last layer's KV is computed and the tensor has no rows.
  virtual device::Tensor forward(Forward& step) const = 0;

  const ModelConfig& config() const { return config_; }
  virtual std::span<const device::KvSpec> kv() const = 0;  // a layer each

 protected:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}

 private:
  ModelConfig config_;
};

// Reads the configuration, checks every tensor of the files against the family, packs the weights (in parallel) and gives
// the files' pages back. Rotary tables cover n_positions. Fails with one line: an unknown family or rope scaling, by name;
// missing, misshaped or left-over tensors, listed.
Result<std::unique_ptr<Model>> load_model(const GgufSet& files, device::Device& device, uint32_t n_positions);

// What a model will take, by arithmetic, before anything is loaded.
struct MemoryNeed {
  uint64_t weights = 0;           // packed
  uint64_t kv_per_token = 0;      // all layers, f16
  uint64_t activations = 0;       // arena of one step with max_rows rows, max_head_rows of them sampled
};
MemoryNeed memory_need(const GgufSet& files, const ModelConfig& config, const device::Device& device,
                       device::Compute compute, uint32_t max_rows, uint32_t max_head_rows);
size_t activation_bytes(const ModelConfig& config, const device::Device& device, uint32_t max_rows,
                        uint32_t max_head_rows);

}  // namespace heddle::model
