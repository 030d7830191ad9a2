#pragma once
// What the sampler's tests share: run a command's chunks, sample one row, and the naive reference of the contract in
// device/sampling.h: double precision, full sort, no shortcuts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cpu/sampler.h"

namespace heddle::cpu {

inline void run(Sampler::Command& command) {
  const uint32_t n = command.n_chunks();
  for (uint32_t i = 0; i < n; ++i) command.run_chunk(i);
}

// One slot, one row at a time.
class OneSlot {
 public:
  OneSlot(uint32_t vocab, const device::SlotSampling& sampling, Isa isa, std::vector<TokenId> prompt = {},
          std::vector<TokenId> generated = {})
      : sampler_(1, vocab, isa), n_generated_(static_cast<uint32_t>(generated.size())) {
    run(sampler_.join(SlotId{0}, sampling, prompt, generated));
  }
  device::SampledToken sample(std::vector<float> logits) { return sample_at(std::move(logits), n_generated_++); }
  device::SampledToken sample_at(std::vector<float> logits, uint32_t token_index) {
    const device::SampleRow row{SlotId{0}, 0, token_index};
    device::SampledToken out;
    run(sampler_.sample({logits.data(), 1, static_cast<uint32_t>(logits.size()), nullptr}, {&row, 1}, {&out, 1}));
    return out;
  }
  Sampler& sampler() { return sampler_; }

 private:
  Sampler sampler_;
  uint32_t n_generated_;
};

// Probability of each token; empty if the row holds a NaN or offers nothing. Greedy: one token has probability 1.
inline std::vector<double> reference(const std::vector<float>& raw, const device::SlotSampling& s,
                                     const std::vector<TokenId>& prompt, const std::vector<TokenId>& generated) {
  const size_t n = raw.size();
  std::vector<double> y(raw.begin(), raw.end());
  for (const double v : y)
    if (std::isnan(v)) return {};
  for (const auto& [token, bias] : s.logit_bias) y[static_cast<size_t>(token)] += static_cast<double>(bias);
  if (generated.size() < s.min_tokens)
    for (const TokenId token : s.end_tokens) y[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < n; ++t) {
    const auto id = static_cast<TokenId>(t);
    const auto count = std::count(generated.begin(), generated.end(), id);
    const bool seen = count > 0 || std::find(prompt.begin(), prompt.end(), id) != prompt.end();
    const auto repetition = static_cast<double>(s.repetition_penalty);
    if (seen) y[t] = y[t] > 0 ? y[t] / repetition : y[t] * repetition;
    y[t] -= static_cast<double>(s.frequency_penalty) * static_cast<double>(count);
    if (count > 0) y[t] -= static_cast<double>(s.presence_penalty);
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return y[a] > y[b]; });
  const double max = y[order[0]];
  std::vector<double> p(n, 0.0);
  if (max == -std::numeric_limits<double>::infinity()) return {};
  if (s.temperature < 1e-5f || std::isinf(max)) {
    p[order[0]] = 1;
    return p;
  }
  std::vector<double> e(n);
  for (size_t t = 0; t < n; ++t) e[t] = std::exp((y[t] - max) / static_cast<double>(s.temperature));
  size_t kept = s.top_k > 0 ? std::min(n, static_cast<size_t>(s.top_k)) : n;
  while (kept > 0 && e[order[kept - 1]] < static_cast<double>(s.min_p)) --kept;
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) mass += e[order[i]];
  if (s.top_p < 1) {
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) {
      sum += e[order[i]];
      if (sum >= static_cast<double>(s.top_p) * mass) {
        kept = i + 1;
        mass = sum;
        break;
      }
    }
  }
  for (size_t i = 0; i < kept; ++i) p[order[i]] = e[order[i]] / mass;
  return p;
}

}  // namespace heddle::cpu
