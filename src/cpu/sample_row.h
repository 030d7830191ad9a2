#pragma once
// Chooses a token from one row of logits: steps 4 to 6 of the contract in device/sampling.h, after the row was scanned.
// Two ways, decided by the parameters alone:
//   - without top_k, top_p and min_p the draw walks the whole row: sums over chunks of 2048, then one chunk;
//   - else the kept tokens are listed. What is listed first is a superset, found through block maxima without a sort:
//   the
//     k-th largest block maximum is a lower bound of the k-th largest logit; tokens too unlikely for min_p, or for all
//     of them together to reach 1 - top_p, are left out. Then top_k, min_p and top_p cut it exactly, with masses as
//     integers, so that no sum depends on an order. Ties fall to the smaller id.
// Owner: the sampler's command; any thread, one row at a time per scratch. `logits` is read only. Never fails.
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cpu/sample_kernels.h"
#include "device/sampling.h"

namespace heddle::cpu {

inline constexpr uint32_t kSampleChunk = 2048;  // logits that share a sum; a multiple of kSampleBlock

// exp(z) as an integer: order-free sums. 2^18 tokens of mass 1 fit 2^58.
inline constexpr double kMassOne = 0x1p40;

struct Candidate {
  float logit;
  TokenId token;
  uint64_t mass;  // kMassOne * exp((logit - max) / temperature)
};

// Memory of one row, kept from call to call.
struct SampleScratch {
  std::vector<float> block_max;  // [blocks]
  std::vector<float> chunk_max;  // [chunks]; used, with chunk_sum, if draws_from_whole_row or needs_row_mass
  std::vector<float> chunk_sum;  // of exp((logit - chunk_max) / temperature)
  std::vector<float> values;
  std::vector<Candidate> candidates;
  std::vector<Candidate> ordered;

  void prepare(uint32_t vocab_size);
};

constexpr uint32_t sample_blocks(uint32_t n) { return (n + kSampleBlock - 1) / kSampleBlock; }
constexpr uint32_t sample_chunks(uint32_t n) { return (n + kSampleChunk - 1) / kSampleChunk; }

inline bool is_greedy(const device::SlotSampling& s) { return !(s.temperature >= 1e-5f); }
// True if chunk_max and chunk_sum must be filled for pick_token.
bool needs_row_mass(const device::SlotSampling& sampling, uint32_t vocab_size);

// Fills chunk_max and chunk_sum for chunks [first, last), whose block maxima are known.
void sum_chunks(const SampleKernels& kernels, std::span<const float> logits, float temperature, uint32_t first,
                uint32_t last, SampleScratch& scratch);

// The token, or -1 if no logit exceeds -inf. A logit of +inf wins outright. `uniform` is the draw, in [0, 1).
TokenId pick_token(const SampleKernels& kernels, std::span<const float> logits, const device::SlotSampling& sampling,
                   double uniform, SampleScratch& scratch);

}  // namespace heddle::cpu
