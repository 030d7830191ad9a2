// Qwen 3 (dense): a pre-norm decoder that normalises q and k per head before rotation; no biases.
#include "model/family.h"

namespace heddle::model {
namespace {

void declare(Weights& weights, const ModelConfig& config, Decoder& decoder) {
  declare_decoder(weights, config, decoder);
}

}  // namespace

const FamilyBlocks qwen3_blocks{declare, pre_norm_forward};

}  // namespace heddle::model
