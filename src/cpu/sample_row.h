#pragma once
// Chooses a token from one row of logits: steps 4 to 6 of the contract in device/sampling.h, after the row was scanned.
// Two ways, decided by the parameters alone:
//   - without top_k, top_p and min_p the draw walks the whole row: sums over chunks of 2048, then one chunk;
//   - else the kept tokens are listed. What is listed first is a superset, found through block maxima: the k-th largest
//     block maximum is a lower bound of the k-th largest logit; tokens too unlikely for min_p, or for all of them
//     together to reach 1 - top_p, are left out. Then top_k, min_p and top_p cut it exactly. A cut needs no sort: a
//     histogram finds the narrow bin that holds the border, and selection finds the border in it. Masses are integers,
//     so that no sum depends on an order. Ties fall to the smaller id.
// Any thread, one row at a time per scratch. `logits` is read only. Never fails.
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
  uint64_t weight;  // 1, or the mass: kMassOne * exp((logit - max) / temperature)
};

// What the scan of a row found.
struct RowScan {
  std::vector<float> block_max;  // [blocks]
  std::vector<float> chunk_max;  // [chunks]; filled, with chunk_sum, if needs_row_mass
  std::vector<float> chunk_sum;  // of exp((logit - chunk_max) / temperature)

  void prepare(uint32_t vocab_size);
};

// Working memory of pick_token, one a thread: up to 12 bytes a token of the vocabulary.
struct PickScratch {
  std::vector<float> values;
  // The listed tokens, ascending in id; the first n_listed entries count.
  std::vector<float> logits;
  std::vector<TokenId> tokens;
  std::vector<float> exps;  // exp((logit - max) / temperature)
  uint32_t n_listed = 0;
  std::vector<uint64_t> bins;
  std::vector<Candidate> border_bin;
};

constexpr uint32_t sample_blocks(uint32_t n) { return (n + kSampleBlock - 1) / kSampleBlock; }
constexpr uint32_t sample_chunks(uint32_t n) { return (n + kSampleChunk - 1) / kSampleChunk; }

inline bool is_greedy(const device::SlotSampling& s) { return !(s.temperature >= 1e-5f); }
// True if chunk_max and chunk_sum must be filled for pick_token.
bool needs_row_mass(const device::SlotSampling& sampling, uint32_t vocab_size);

// Fills chunk_max and chunk_sum for chunks [first, last), whose block maxima are known.
void sum_chunks(const SampleKernels& kernels, std::span<const float> logits, float temperature, uint32_t first,
                uint32_t last, RowScan& scan);

// The token, or -1 if no logit exceeds -inf. A logit of +inf wins outright. `uniform` is the draw, in [0, 1).
TokenId pick_token(const SampleKernels& kernels, std::span<const float> logits, const RowScan& scan,
                   const device::SlotSampling& sampling, double uniform, PickScratch& scratch);

}  // namespace heddle::cpu
