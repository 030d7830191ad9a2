#pragma once
// What a model family is: which weights it has, and its forward pass. One file a family (llama.cpp, ...), found by the
// architecture that the weight file names; what its numbers are comes from config.h. A family calls ops only through
// Forward. To add one: a value of the enum Family with its configuration, a file here, a line in blocks_of.
#include "model/config.h"
#include "model/decoder.h"
#include "model/forward.h"
#include "model/weights.h"

namespace heddle::model {

struct FamilyBlocks {
  void (*declare)(Weights& weights, const ModelConfig& config, Decoder& decoder);
  device::Tensor (*forward)(Forward& step, const ModelConfig& config, const Decoder& decoder);
};

extern const FamilyBlocks llama_blocks;
extern const FamilyBlocks qwen2_blocks;
extern const FamilyBlocks qwen3_blocks;
extern const FamilyBlocks gemma3_blocks;

const FamilyBlocks& blocks_of(Family family);

}  // namespace heddle::model
