#include "cpu/sample_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace heddle::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  const SampleKernels& kernels;
  std::span<const float> logits;
  const device::SlotSampling& sampling;
  float max;                  // finite
  float inverse_temperature;  // 0 < it <= 1e5
  const RowScan& scan;
  PickScratch& scratch;

  uint32_t size() const { return static_cast<uint32_t>(logits.size()); }
};

bool top_k_active(const device::SlotSampling& s, uint32_t n) {
  return s.top_k > 0 && static_cast<uint32_t>(s.top_k) < n;
}

bool before(float logit_a, TokenId a, float logit_b, TokenId b) {
  return logit_a != logit_b ? logit_a > logit_b : a < b;
}

TokenId argmax(std::span<const float> logits, std::span<const float> block_max, float max) {
  const size_t block = static_cast<size_t>(std::find(block_max.begin(), block_max.end(), max) - block_max.begin());
  const auto from = logits.begin() + static_cast<std::ptrdiff_t>(block * kSampleBlock);
  return static_cast<TokenId>(std::find(from, logits.end(), max) - logits.begin());
}

uint64_t mass_of(float exp) { return static_cast<uint64_t>(static_cast<double>(exp) * kMassOne); }

// Lists the logits that are at least `bound` and exceed -inf, with their exponentials.
void list_at_least(const Row& row, float bound) {
  PickScratch& s = row.scratch;
  s.logits.resize(row.size() + 1);  // one to spare: an entry is written before it is known to count
  s.tokens.resize(row.size() + 1);
  s.exps.resize(row.size());
  const float* y = row.logits.data();
  uint32_t n = 0;
  for (uint32_t b = 0; b < row.scan.block_max.size(); ++b) {
    if (!(row.scan.block_max[b] >= bound)) continue;
    const uint32_t end = std::min(row.size(), (b + 1) * kSampleBlock);
    for (uint32_t i = b * kSampleBlock; i < end; ++i) {
      s.logits[n] = y[i];
      s.tokens[n] = static_cast<TokenId>(i);
      n += static_cast<uint32_t>(y[i] >= bound) & static_cast<uint32_t>(y[i] > -kInfinity);
    }
  }
  s.n_listed = n;
  row.kernels.exps(s.logits.data(), n, row.max, row.inverse_temperature, s.exps.data());
}

template <class Keep>
void keep_if(PickScratch& s, Keep keep) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s.n_listed; ++i) {
    if (!keep(i)) continue;
    s.logits[n] = s.logits[i];
    s.tokens[n] = s.tokens[i];
    s.exps[n] = s.exps[i];
    ++n;
  }
  s.n_listed = n;
}

uint64_t listed_mass(const PickScratch& s) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < s.n_listed; ++i) sum += mass_of(s.exps[i]);
  return sum;
}

// A lower bound of the k-th largest logit: k blocks have a logit that high.
float top_k_bound(const Row& row, uint32_t k) {
  auto& bounds = row.scratch.values;
  bounds.assign(row.scan.block_max.begin(), row.scan.block_max.end());
  if (k > bounds.size()) return -kInfinity;
  const auto kth = bounds.begin() + (k - 1);
  std::nth_element(bounds.begin(), kth, bounds.end(), std::greater<>());
  return *kth;
}

// The mass of the whole row in units of exp(0), from the chunk sums; weights[c] becomes the mass of chunk c.
double row_mass(const Row& row, std::vector<float>& weights) {
  const auto& sums = row.scan.chunk_sum;
  weights.resize(sums.size());
  row.kernels.exps(row.scan.chunk_max.data(), static_cast<uint32_t>(sums.size()), row.max, row.inverse_temperature,
                   weights.data());
  double mass = 0;
  for (size_t c = 0; c < sums.size(); ++c) {
    weights[c] *= sums[c];
    mass += static_cast<double>(weights[c]);
  }
  return mass;
}

// The last of the list, in order of falling logit, of the smallest set whose weight reaches `target`, given that
// `above` weighs before all of them. The half that holds the border is searched, the other only summed.
Candidate find_border(std::vector<Candidate>& list, uint64_t above, double target) {
  const auto at = [&](size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
  size_t low = 0, high = list.size();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(at(low), at(middle), at(high),
                     [](const Candidate& a, const Candidate& b) { return before(a.logit, a.token, b.logit, b.token); });
    uint64_t weight = above;
    for (size_t i = low; i < middle; ++i) weight += list[i].weight;
    if (static_cast<double>(weight) >= target) {
      high = middle;
    } else {
      above = weight;
      low = middle;
    }
  }
  return list[low];
}

// Eight bins an octave of the exponential, the largest (1) first.
constexpr uint32_t kBins = 0x3f8 + 1;
uint32_t bin_of(float exp) { return (kBins - 1) - (std::bit_cast<uint32_t>(exp) >> 20); }

// Keeps the smallest set, in order of falling logit, whose weight reaches `target`; all, if all do not reach it.
template <class Weight>
void keep_until(PickScratch& s, Weight weight, double target) {
  s.bins.assign(kBins, 0);
  for (uint32_t i = 0; i < s.n_listed; ++i) s.bins[bin_of(s.exps[i])] += weight(s.exps[i]);
  uint64_t above = 0;
  uint32_t bin = 0;
  while (bin < kBins && (s.bins[bin] == 0 || static_cast<double>(above + s.bins[bin]) < target)) above += s.bins[bin++];
  if (bin == kBins) return;
  s.border_bin.clear();
  for (uint32_t i = 0; i < s.n_listed; ++i)
    if (bin_of(s.exps[i]) == bin) s.border_bin.push_back({s.logits[i], s.tokens[i], weight(s.exps[i])});
  const Candidate border = find_border(s.border_bin, above, target);
  keep_if(s, [&](uint32_t i) {
    const uint32_t b = bin_of(s.exps[i]);
    return b < bin || (b == bin && !before(border.logit, border.token, s.logits[i], s.tokens[i]));
  });
}

TokenId draw_from_list(const PickScratch& s, double uniform) {
  const uint64_t total = listed_mass(s);  // not 0: the largest logit is listed
  const uint64_t target = std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  uint64_t sum = 0;
  uint32_t i = 0;
  while ((sum += mass_of(s.exps[i])) <= target) ++i;
  return s.tokens[i];
}

TokenId draw_from_row(const Row& row, double uniform) {
  auto& weights = row.scratch.values;
  const double mass = row_mass(row, weights);
  const double target = std::min(uniform * mass, std::nextafter(mass, 0.0));
  size_t chunk = 0;
  double sum = 0;  // ends as `mass` if nothing stops it, so some chunk exceeds the target
  while (!(sum + static_cast<double>(weights[chunk]) > target)) sum += static_cast<double>(weights[chunk++]);

  float exps[kSampleChunk];
  const uint32_t first = static_cast<uint32_t>(chunk) * kSampleChunk;
  const uint32_t n = std::min(kSampleChunk, row.size() - first);
  row.kernels.exps(row.logits.data() + first, n, row.max, row.inverse_temperature, exps);
  uint32_t last = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (exps[i] == 0.0f) continue;
    last = i;
    sum += static_cast<double>(exps[i]);
    if (sum > target) break;
  }
  return static_cast<TokenId>(first + last);
}

// The superset of what min_p keeps, in logits: a little below the exact border, which masses then decide.
float min_p_bound(const Row& row) {
  return row.max + (std::log(row.sampling.min_p) * 1.0001f - 0.001f) / row.inverse_temperature;
}

// Tokens below max - z weigh at most n exp(-z) together. With that at most (1 - p) of the mass, the others hold top_p.
float top_p_bound(const Row& row, double mass) {
  const double rest = (1.0 - static_cast<double>(row.sampling.top_p)) * mass;
  const double z = std::log(static_cast<double>(row.size()) / std::max(rest, 1e-30)) + 0.1;
  return row.max - static_cast<float>(std::min(z, 88.0)) / row.inverse_temperature;
}

}  // namespace

void RowScan::prepare(uint32_t vocab_size) {
  block_max.resize(sample_blocks(vocab_size));
  chunk_max.resize(sample_chunks(vocab_size));
  chunk_sum.resize(sample_chunks(vocab_size));
}

bool needs_row_mass(const device::SlotSampling& sampling, uint32_t vocab_size) {
  return !is_greedy(sampling) && !top_k_active(sampling, vocab_size) && !(sampling.min_p > 0);
}

void sum_chunks(const SampleKernels& kernels, std::span<const float> logits, float temperature, uint32_t first,
                uint32_t last, RowScan& scan) {
  const auto n = static_cast<uint32_t>(logits.size());
  constexpr uint32_t kBlocks = kSampleChunk / kSampleBlock;
  for (uint32_t c = first; c < last; ++c) {
    const uint32_t begin = c * kSampleChunk, end = std::min(n, begin + kSampleChunk);
    float max = -kInfinity;
    for (uint32_t b = c * kBlocks; b < sample_blocks(end); ++b) max = std::max(max, scan.block_max[b]);
    scan.chunk_max[c] = max;
    // A chunk of -inf holds nothing; one with +inf belongs to a row that pick_token settles without sums.
    scan.chunk_sum[c] =
        std::isfinite(max) ? kernels.exp_sum(logits.data() + begin, end - begin, max, 1.0f / temperature) : 0.0f;
  }
}

TokenId pick_token(const SampleKernels& kernels, std::span<const float> logits, const RowScan& scan,
                   const device::SlotSampling& sampling, double uniform, PickScratch& scratch) {
  const float max = *std::max_element(scan.block_max.begin(), scan.block_max.end());
  if (max == -kInfinity) return -1;
  if (is_greedy(sampling) || max == kInfinity) return argmax(logits, scan.block_max, max);

  const Row row{kernels, logits, sampling, max, 1.0f / sampling.temperature, scan, scratch};
  const bool top_k = top_k_active(sampling, row.size());
  const bool min_p = sampling.min_p > 0;
  const bool top_p = sampling.top_p < 1;
  if (!top_k && !min_p && !top_p) return draw_from_row(row, uniform);

  double mass = 0;  // of what top_k and min_p keep, in units of kMassOne
  if (top_k) {
    const auto k = static_cast<uint32_t>(sampling.top_k);
    list_at_least(row, top_k_bound(row, k));
    if (scratch.n_listed > k)
      keep_until(
          scratch, [](float) { return uint64_t{1}; }, static_cast<double>(k));
  } else if (min_p) {
    list_at_least(row, min_p_bound(row));
  } else {
    const double whole = row_mass(row, scratch.values);
    mass = whole * kMassOne;
    list_at_least(row, top_p_bound(row, whole));
  }
  if (min_p) keep_if(scratch, [&](uint32_t i) { return scratch.exps[i] >= std::min(sampling.min_p, 1.0f); });
  if (top_p) {
    if (top_k || min_p) mass = static_cast<double>(listed_mass(scratch));
    keep_until(scratch, mass_of, static_cast<double>(sampling.top_p) * mass);
  }
  return draw_from_list(scratch, uniform);
}

}  // namespace heddle::cpu
