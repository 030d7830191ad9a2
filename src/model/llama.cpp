// Llama 1 to 3 and what follows their shape (SmolLM2, Mistral, ...): pre-norm decoder, grouped-query attention, gated
// SiLU feed-forward. Their GGUF files hold q and k for interleaved rotary pairs. Llama 3's frequency scaling comes as
// the tensor rope_freqs, which the configuration has read.
#include "model/family.h"

namespace heddle::model {
namespace {

void declare(Weights& weights, const ModelConfig& config, Decoder& decoder) {
  weights.may_have("rope_freqs");
  declare_decoder(weights, config, decoder);
}

}  // namespace

const FamilyBlocks llama_blocks{declare, pre_norm_forward};

}  // namespace heddle::model
