// Qwen 2 and 2.5: a pre-norm decoder whose q, k and v have biases; half-split rotary pairs.
#include "model/family.h"

namespace heddle::model {
namespace {

void declare(Weights& weights, const ModelConfig& config, Decoder& decoder) {
  declare_decoder(weights, config, decoder);
}

}  // namespace

const FamilyBlocks qwen2_blocks{declare, pre_norm_forward};

}  // namespace heddle::model
