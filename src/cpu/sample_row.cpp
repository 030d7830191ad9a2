#include "cpu/sample_row.h"

#include <algorithm>
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
  SampleScratch& scratch;

  uint32_t size() const { return static_cast<uint32_t>(logits.size()); }
};

bool top_k_active(const device::SlotSampling& s, uint32_t n) {
  return s.top_k > 0 && static_cast<uint32_t>(s.top_k) < n;
}

bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

TokenId argmax(std::span<const float> logits, std::span<const float> block_max, float max) {
  const size_t block = static_cast<size_t>(std::find(block_max.begin(), block_max.end(), max) - block_max.begin());
  const auto from = logits.begin() + static_cast<std::ptrdiff_t>(block * kSampleBlock);
  return static_cast<TokenId>(std::find(from, logits.end(), max) - logits.begin());
}

// Lists the finite logits that are at least `bound`, ascending in id.
void list_at_least(const Row& row, float bound) {
  auto& out = row.scratch.candidates;
  out.clear();
  const float* y = row.logits.data();
  for (uint32_t b = 0; b < row.scratch.block_max.size(); ++b) {
    if (!(row.scratch.block_max[b] >= bound)) continue;
    const uint32_t end = std::min(row.size(), (b + 1) * kSampleBlock);
    for (uint32_t i = b * kSampleBlock; i < end; ++i)
      if (y[i] >= bound && y[i] > -kInfinity) out.push_back({y[i], static_cast<TokenId>(i), 0});
  }
}

void weigh(const Row& row) {
  auto& list = row.scratch.candidates;
  auto& values = row.scratch.values;
  values.resize(2 * list.size());
  for (size_t i = 0; i < list.size(); ++i) values[i] = list[i].logit;
  float* exps = values.data() + list.size();
  row.kernels.exps(values.data(), static_cast<uint32_t>(list.size()), row.max, row.inverse_temperature, exps);
  for (size_t i = 0; i < list.size(); ++i)
    list[i].mass = static_cast<uint64_t>(static_cast<double>(exps[i]) * kMassOne);
}

uint64_t total_mass(std::span<const Candidate> list) {
  uint64_t sum = 0;
  for (const Candidate& c : list) sum += c.mass;
  return sum;
}

void list_top_k(const Row& row, uint32_t k) {
  auto& bounds = row.scratch.values;
  bounds.assign(row.scratch.block_max.begin(), row.scratch.block_max.end());
  float bound = -kInfinity;
  if (k <= bounds.size()) {
    const auto kth = bounds.begin() + (k - 1);
    std::nth_element(bounds.begin(), kth, bounds.end(), std::greater<>());
    bound = *kth;
  }
  list_at_least(row, bound);
  auto& list = row.scratch.candidates;
  if (list.size() > k) {
    std::nth_element(list.begin(), list.begin() + (k - 1), list.end(), before);
    list.resize(k);
    std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
}

// The mass of the whole row in units of exp(0), from the chunk sums; weights[c] becomes the mass of chunk c.
double row_mass(const Row& row, std::vector<float>& weights) {
  const auto& sums = row.scratch.chunk_sum;
  weights.resize(sums.size());
  row.kernels.exps(row.scratch.chunk_max.data(), static_cast<uint32_t>(sums.size()), row.max, row.inverse_temperature,
                   weights.data());
  double mass = 0;
  for (size_t c = 0; c < sums.size(); ++c) {
    weights[c] *= sums[c];
    mass += static_cast<double>(weights[c]);
  }
  return mass;
}

// The last token, in order of falling logit, of the smallest set whose mass reaches `target`. By selection: the half
// that holds the border is searched, the other is only summed.
Candidate mass_border(std::vector<Candidate>& list, double target) {
  size_t low = 0, high = list.size();
  uint64_t above = 0;  // mass of [0, low)
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const auto at = [&](size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
    std::nth_element(at(low), at(middle), at(high), before);
    const uint64_t mass = above + total_mass({list.data() + low, middle - low});
    if (static_cast<double>(mass) >= target) {
      high = middle;
    } else {
      above = mass;
      low = middle;
    }
  }
  return list[low];
}

TokenId draw_from_list(std::span<const Candidate> list, double uniform) {
  const uint64_t total = total_mass(list);
  const uint64_t target = std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  uint64_t sum = 0;
  for (const Candidate& c : list) {
    sum += c.mass;
    if (sum > target) return c.token;
  }
  return list.back().token;
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

void SampleScratch::prepare(uint32_t vocab_size) {
  block_max.resize(sample_blocks(vocab_size));
  chunk_max.resize(sample_chunks(vocab_size));
  chunk_sum.resize(sample_chunks(vocab_size));
}

bool needs_row_mass(const device::SlotSampling& sampling, uint32_t vocab_size) {
  return !is_greedy(sampling) && !top_k_active(sampling, vocab_size) && !(sampling.min_p > 0);
}

void sum_chunks(const SampleKernels& kernels, std::span<const float> logits, float temperature, uint32_t first,
                uint32_t last, SampleScratch& scratch) {
  const auto n = static_cast<uint32_t>(logits.size());
  constexpr uint32_t kBlocks = kSampleChunk / kSampleBlock;
  for (uint32_t c = first; c < last; ++c) {
    const uint32_t begin = c * kSampleChunk, end = std::min(n, begin + kSampleChunk);
    float max = -kInfinity;
    for (uint32_t b = c * kBlocks; b < sample_blocks(end); ++b) max = std::max(max, scratch.block_max[b]);
    scratch.chunk_max[c] = max;
    // A chunk of -inf holds nothing; one with +inf belongs to a row that pick_token settles without sums.
    scratch.chunk_sum[c] =
        std::isfinite(max) ? kernels.exp_sum(logits.data() + begin, end - begin, max, 1.0f / temperature) : 0.0f;
  }
}

TokenId pick_token(const SampleKernels& kernels, std::span<const float> logits, const device::SlotSampling& sampling,
                   double uniform, SampleScratch& scratch) {
  const float max = *std::max_element(scratch.block_max.begin(), scratch.block_max.end());
  if (max == -kInfinity) return -1;
  if (is_greedy(sampling) || max == kInfinity) return argmax(logits, scratch.block_max, max);

  const Row row{kernels, logits, sampling, max, 1.0f / sampling.temperature, scratch};
  const bool top_k = top_k_active(sampling, row.size());
  const bool min_p = sampling.min_p > 0;
  const bool top_p = sampling.top_p < 1;
  if (!top_k && !min_p && !top_p) return draw_from_row(row, uniform);

  double mass = 0;  // of what top_k and min_p keep, in units of kMassOne
  if (top_k) {
    list_top_k(row, static_cast<uint32_t>(sampling.top_k));
  } else if (min_p) {
    list_at_least(row, min_p_bound(row));
  } else {
    const double whole = row_mass(row, scratch.values);
    mass = whole * kMassOne;
    list_at_least(row, top_p_bound(row, whole));
  }
  weigh(row);
  auto& list = scratch.candidates;
  if (min_p) {
    const double least = static_cast<double>(std::min(sampling.min_p, 1.0f)) * kMassOne;
    std::erase_if(list, [&](const Candidate& c) { return static_cast<double>(c.mass) < least; });
  }
  if (top_p) {
    if (top_k || min_p) mass = static_cast<double>(total_mass(list));
    scratch.ordered = list;
    const Candidate border = mass_border(scratch.ordered, static_cast<double>(sampling.top_p) * mass);
    std::erase_if(list, [&](const Candidate& c) { return before(border, c); });
  }
  return draw_from_list(list, uniform);
}

}  // namespace heddle::cpu
