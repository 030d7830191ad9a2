#pragma once
// The sampling contract: what a slot knows, and what happens to a row of logits, in this order (vLLM's order):
//   1. raw logits; NaN anywhere in the row (masked or not) -> token -1 and the nan flag, nothing else
//   2. logit_bias added; end tokens masked to -inf while fewer than min_tokens were generated; then tokens outside the
//      row's mask, where it has one. Nothing left above -inf -> token -1 and the nan flag, nothing else
//   3. repetition penalty over prompt and generated tokens (positive logits divided, negative multiplied), then
//   frequency
//      and presence penalties over generated tokens
//   4. temperature < 1e-5: argmax, ties to the smallest id
//   5. divide by temperature; top_k; min_p (relative to the largest probability); top_p (smallest set whose mass
//   reaches p,
//      ties at the border by smaller id)
//   6. one draw with Philox4x32-10 keyed by (seed, index of the generated token): independent of batch, row and step
// Every sum runs over fixed chunks in ascending order, so a row's token does not depend on threads or on its
// neighbours.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace heddle::device {

struct SlotSampling {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0 or less: off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  uint32_t min_tokens = 0;
  std::vector<TokenId> end_tokens;  // masked while fewer than min_tokens were generated
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool needs_counts() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
};

struct SampleRow {
  SlotId slot;
  uint32_t logits_row = 0;
  uint32_t token_index = 0;  // how many tokens the sequence generated before this one
  const uint32_t* mask =
      nullptr;  // [ceil(vocab / 32)] one bit a token, set: allowed; null: all are. Valid until on_done
};

struct SampledToken {
  TokenId token = -1;
  bool nan = false;  // with token -1: the row held a NaN, or nothing but -inf once its mask was applied
};

}  // namespace heddle::device
