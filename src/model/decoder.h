#pragma once
// Blocks that the decoder families share: the weights of a layer, their declaration under GGUF's names, the attention
// and the gated feed-forward dataflow, and the pre-norm decoder that three families are. A family file says which of
// them it uses. Activations are a handful of tensors, made once a step and used again by every layer: ops run in queue
// order.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/forward.h"
#include "model/weights.h"

namespace heddle::model {

struct DecoderLayer {
  device::Vector attention_norm, ffn_norm;            // before the block
  device::Vector post_attention_norm, post_ffn_norm;  // after it; sandwich norms only
  std::unique_ptr<device::Linear> qkv;                // [(n_heads + 2 n_kv_heads) * head_dim, hidden]
  std::unique_ptr<device::Linear> attention_output;   // [hidden, n_heads * head_dim]
  std::unique_ptr<device::Linear> gate_up;            // [2 * ffn, hidden]
  std::unique_ptr<device::Linear> down;               // [hidden, ffn]
  device::AttentionSpec attention;
};

struct Decoder {
  std::unique_ptr<device::Linear> embedding;  // [vocab, hidden]
  std::unique_ptr<device::Linear> own_head;   // null: tied, the embedding's packed table serves both
  device::Vector output_norm;
  std::vector<DecoderLayer> layers;
  std::vector<device::KvSpec> kv;  // a layer each

  const device::Linear& head() const { return own_head ? *own_head : *embedding; }
};

std::string block_name(uint32_t layer, const char* name);  // "blk.3.attn_q"

// Embedding, head and final norm; makes config.n_layers layers.
void declare_ends(Weights& weights, const ModelConfig& config, Decoder& decoder);
void declare_attention(Weights& weights, const ModelConfig& config, uint32_t layer, Decoder& decoder);
void declare_ffn(Weights& weights, const ModelConfig& config, uint32_t layer, Decoder& decoder);
// All of these, for a decoder whose layers are one attention and one gated feed-forward block.
void declare_decoder(Weights& weights, const ModelConfig& config, Decoder& decoder);

// All [rows, ...]; rows becomes the head rows' number in the last layer.
struct Activations {
  device::Tensor x;          // residual stream [hidden]
  device::Tensor normed;     // [hidden]
  device::Tensor qkv;        // [(n_heads + 2 n_kv_heads) * head_dim]
  device::Tensor attended;   // [n_heads * head_dim]
  device::Tensor projected;  // [hidden]
  device::Tensor gate_up;    // [2 * ffn]
  device::Tensor gated;      // [ffn]
};

class DecoderStep {
 public:
  DecoderStep(Forward& forward, const ModelConfig& config, const Decoder& decoder);

  Activations& tensors() { return a_; }
  // normed -> projected. In the last layer only head rows go on after attention, and x shrinks with them. False: there
  // are none, the step ends here.
  bool attention(const DecoderLayer& layer);
  // normed -> projected
  void ffn(const DecoderLayer& layer);
  device::Tensor logits();     // of normed: [head rows, vocab]
  device::Tensor no_logits();  // [0, vocab]

 private:
  void keep_head_rows();

  Forward& forward_;
  const ModelConfig& config_;
  const Decoder& decoder_;
  Activations a_;
};

// x += attention(norm(x)); x += ffn(norm(x)) in every layer, then the final norm and the head.
device::Tensor pre_norm_forward(Forward& forward, const ModelConfig& config, const Decoder& decoder);

}  // namespace heddle::model
