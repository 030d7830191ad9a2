#pragma once
// Runs a model's forward pass directly, without a runner: one sequence on blocks of its own, in chunks of any size.
#include <algorithm>
#include <numeric>
#include <vector>

#include "model/forward.h"
#include "model/model.h"

namespace heddle::model {

// Rows of logits [positions asked for, vocab] of one sequence, computed in steps of at most `chunk` rows.
inline std::vector<std::vector<float>> forward_logits(const Model& model, device::Device& device,
                                                      const std::vector<TokenId>& ids,
                                                      const std::vector<uint32_t>& positions, uint32_t chunk) {
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < ids.size() / 16 + 1; ++i) blocks.push_back(BlockId{i});
  std::vector<std::vector<float>> out;
  for (uint32_t at = 0; at < ids.size(); at += chunk) {
    const uint32_t n = std::min(chunk, static_cast<uint32_t>(ids.size()) - at);
    const device::BatchSeq seq{SlotId{0}, 0, n, at, blocks.data()};
    std::vector<int32_t> rotary(n);
    std::iota(rotary.begin(), rotary.end(), static_cast<int32_t>(at));
    const std::vector<uint32_t> row_seq(n, 0);
    std::vector<uint32_t> head_rows;
    for (const uint32_t p : positions)
      if (p >= at && p < at + n) head_rows.push_back(p - at);
    const device::Batch batch{n, {&seq, 1}, std::span(ids).subspan(at, n), rotary, row_seq, head_rows};
    device.reset_arena(0);
    Forward forward(device, device.queue(), batch, 0);
    const device::Tensor logits = model.forward(forward);
    std::vector<float> host(size_t{logits.rows} * logits.cols);
    if (logits.rows > 0) device.copy_to_host(device.queue(), logits, host.data());
    for (uint32_t r = 0; r < logits.rows; ++r)
      out.emplace_back(host.begin() + r * logits.cols, host.begin() + (r + 1) * logits.cols);
  }
  return out;
}

}  // namespace heddle::model
