#pragma once
// What a model is, read from its weight file's metadata: every number that a family's forward pass and the memory plan
// need. A value; made once at load, then const; any thread. Reading fails with one line that names the key: what heddle
// cannot compute is refused by name, never guessed. Meaning of the keys: ggml's docs/gguf.md, and llama.cpp, whose
// converter writes them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/attention.h"
#include "device/device.h"
#include "model/gguf_set.h"

namespace heddle::model {

enum class Family : uint8_t { llama, qwen2, qwen3, gemma3 };

std::string_view family_name(Family family);  // as in general.architecture

struct ModelConfig {
  Family family = Family::llama;
  std::string name;  // general.name; may be empty

  uint32_t n_layers = 0;
  uint32_t hidden = 0;
  uint32_t n_heads = 0;
  uint32_t n_kv_heads = 0;  // divides n_heads
  uint32_t head_dim = 0;    // of q, k and v; even
  uint32_t ffn = 0;         // width of the gated feed-forward
  uint32_t vocab_size = 0;  // rows of the embedding, equal to the tokens of the vocabulary
  uint32_t context_length = 0;

  float norm_epsilon = 0.0f;
  float attention_scale = 0.0f;  // of q·k
  float embedding_scale = 1.0f;
  device::Activation activation = device::Activation::silu;

  // rope_global.factors holds rope_freqs.weight where the file has one (Llama 3 scaling). rope_local is for layers with
  // a window.
  device::RopeSpec rope_global, rope_local;
  bool rope_interleaved = false;  // q and k rows lie as pairs (2i, 2i + 1); else as halves (i, i + head_dim / 2)
  uint32_t window = 0;            // of local layers; 0: there are none
  std::vector<bool> local;        // [n_layers]

  bool tied_head = false;  // no output.weight: the embedding is the head
  bool qkv_bias = false;
  bool qk_norm = false;     // per-head RMS norm of q and k before rotation
  bool post_norms = false;  // a second norm after attention and after the feed-forward, before the residual sum

  uint32_t q_size() const { return n_heads * head_dim; }
  uint32_t kv_size() const { return n_kv_heads * head_dim; }
  uint32_t window_of(uint32_t layer) const { return local[layer] ? window : 0; }
  bool operator==(const ModelConfig&) const = default;
  const device::RopeSpec& rope_of(uint32_t layer) const { return local[layer] ? rope_local : rope_global; }
};

Result<ModelConfig> read_config(const GgufSet& files);

}  // namespace heddle::model
