// Gemma 3 (text): scaled embedding, norms before and after each block (sandwich), q and k normalised per head, a
// sliding window with a rotary base of its own in most layers, gelu (tanh) in the feed-forward, head tied to the
// embedding. GGUF stores norm weights as 1 + w.
#include "model/family.h"

namespace heddle::model {
namespace {

void declare(Weights& weights, const ModelConfig& config, Decoder& decoder) {
  declare_decoder(weights, config, decoder);
  for (uint32_t i = 0; i < config.n_layers; ++i) {
    DecoderLayer& layer = decoder.layers[i];
    weights.vector(layer.post_attention_norm, block_name(i, "post_attention_norm"), config.hidden);
    weights.vector(layer.post_ffn_norm, block_name(i, "post_ffw_norm"), config.hidden);
  }
}

// x += post_norm(attention(norm(x))); x += post_norm(ffn(norm(x)))
device::Tensor forward(Forward& forward, const ModelConfig& config, const Decoder& decoder) {
  DecoderStep step(forward, config, decoder);
  Activations& a = step.tensors();
  const float epsilon = config.norm_epsilon;
  forward.embed(*decoder.embedding, config.embedding_scale, a.x);
  for (const DecoderLayer& layer : decoder.layers) {
    forward.norm(a.x, layer.attention_norm, epsilon, a.normed);
    if (!step.attention(layer)) return step.no_logits();
    forward.norm_add(a.projected, layer.post_attention_norm, epsilon, a.x);
    forward.norm(a.x, layer.ffn_norm, epsilon, a.normed);
    step.ffn(layer);
    forward.norm_add(a.projected, layer.post_ffn_norm, epsilon, a.x);
  }
  forward.norm(a.x, decoder.output_norm, epsilon, a.normed);
  return step.logits();
}

}  // namespace

const FamilyBlocks gemma3_blocks{declare, forward};

}  // namespace heddle::model
