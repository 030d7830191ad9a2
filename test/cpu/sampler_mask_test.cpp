// Token masks of a row: what a mask leaves out cannot be sampled, whatever else is asked of the row.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "cpu/sampler_harness.h"

namespace heddle::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Mask {
 public:
  // Words past the vocabulary's last id hold set bits: they must not matter.
  explicit Mask(uint32_t vocab, bool all = false) : words_((vocab + 31) / 32, all ? ~0u : 0u) {
    if (vocab % 32 != 0) words_.back() |= ~0u << vocab % 32;
  }
  Mask(uint32_t vocab, double share, std::mt19937& random) : Mask(vocab) {
    std::bernoulli_distribution allowed(share);
    for (uint32_t t = 0; t < vocab; ++t)
      if (allowed(random)) allow(t);
  }
  void allow(uint32_t token) { words_[token / 32] |= 1u << token % 32; }
  void forbid(uint32_t token) { words_[token / 32] &= ~(1u << token % 32); }
  bool allows(size_t token) const { return (words_[token / 32] >> token % 32 & 1u) != 0; }
  const uint32_t* data() const { return words_.data(); }

 private:
  std::vector<uint32_t> words_;
};

std::vector<float> random_logits(uint32_t n, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(n);
  for (float& y : logits) y = normal(random);
  return logits;
}

std::vector<float> masked(std::vector<float> logits, const Mask& mask) {
  for (size_t t = 0; t < logits.size(); ++t)
    if (!mask.allows(t)) logits[t] = -kInf;
  return logits;
}

device::SampledToken sample(std::vector<float> logits, const device::SlotSampling& sampling, Isa isa, const Mask* mask,
                            uint32_t token_index = 0, const std::vector<TokenId>& generated = {}) {
  const auto vocab = static_cast<uint32_t>(logits.size());
  Sampler sampler(1, vocab, isa);
  run(sampler.join(SlotId{0}, sampling, {}, generated));
  const device::SampleRow row{SlotId{0}, 0, token_index, mask == nullptr ? nullptr : mask->data()};
  device::SampledToken out;
  run(sampler.sample({logits.data(), 1, vocab, nullptr}, {&row, 1}, {&out, 1}));
  return out;
}

}  // namespace

TEST_CASE("a masked row is sampled as if the tokens left out had logits of -inf, on every instruction set") {
  const uint32_t seed = 31;
  std::mt19937 random(seed);
  INFO("seed ", seed);
  for (const uint32_t n : {1u, 5u, 16u, 31u, 32u, 33u, 100u, 2049u, 32768u, 49152u, 70001u}) {
    for (const double share : {0.001, 0.1, 0.5, 0.999}) {
      const std::vector<float> logits = random_logits(n, random);
      Mask mask(n, share, random);
      mask.allow(static_cast<uint32_t>(random() % n));
      const std::vector<float> by_hand = masked(logits, mask);
      for (const device::SlotSampling& s :
           {device::SlotSampling{.temperature = 0.0f}, device::SlotSampling{.seed = random()},
            device::SlotSampling{.temperature = 1.7f, .top_p = 0.9f, .seed = random()},
            device::SlotSampling{.min_p = 0.01f, .top_k = 20, .seed = random()}}) {
        const TokenId expected = sample(by_hand, s, Isa::scalar, nullptr).token;
        REQUIRE(expected >= 0);
        CHECK(mask.allows(static_cast<size_t>(expected)));
        for (const Isa isa : available_isas()) {
          CAPTURE(n);
          CAPTURE(share);
          CAPTURE(isa_name(isa));
          const device::SampledToken out = sample(logits, s, isa, &mask);
          CHECK(out.token == expected);
          CHECK(!out.nan);
        }
      }
    }
  }
}

TEST_CASE("a mask that allows everything changes nothing") {
  std::mt19937 random(32);
  const std::vector<float> logits = random_logits(40000, random);
  const Mask all(40000, true);
  for (const Isa isa : available_isas()) {
    for (uint64_t seed = 0; seed < 20; ++seed)
      CHECK(sample(logits, {.seed = seed}, isa, &all).token == sample(logits, {.seed = seed}, isa, nullptr).token);
  }
}

TEST_CASE("draws from a masked row follow the distribution over what is left") {
  std::mt19937 random(33);
  constexpr uint32_t kVocab = 120, kDraws = 20000;
  const std::vector<float> logits = random_logits(kVocab, random);
  const Mask mask(kVocab, 0.3, random);
  for (const device::SlotSampling& s :
       {device::SlotSampling{.seed = 1}, device::SlotSampling{.temperature = 0.7f, .top_p = 0.8f, .seed = 2}}) {
    const std::vector<double> expected = reference(masked(logits, mask), s, {}, {});
    std::vector<double> seen(kVocab);
    for (uint32_t i = 0; i < kDraws; ++i)
      seen[static_cast<size_t>(sample(logits, s, available_isas().back(), &mask, i).token)] += 1.0 / kDraws;
    for (size_t t = 0; t < kVocab; ++t) {
      // Five standard deviations of a binomial share; exactly none where none may be.
      const double deviation = std::sqrt(expected[t] * (1 - expected[t]) / kDraws);
      CHECK(std::abs(seen[t] - expected[t]) <= 5 * deviation);
    }
  }
}

TEST_CASE("a mask comes after bias and minimum length and before penalties: none of them brings a token back") {
  for (const Isa isa : available_isas()) {
    Mask mask(4);
    mask.allow(1);
    mask.allow(3);
    device::SlotSampling s{.temperature = 0.0f};
    s.logit_bias = {{0, 100.0f}};
    CHECK(sample({5.0f, 1.0f, 4.0f, 0.0f}, s, isa, &mask).token == 1);
    // The end token is ruled out by the minimum length, the rest by the mask.
    s.min_tokens = 2;
    s.end_tokens = {1};
    CHECK(sample({5.0f, 1.0f, 4.0f, 0.0f}, s, isa, &mask, 1).token == 3);
    CHECK(sample({5.0f, 1.0f, 4.0f, 0.0f}, s, isa, &mask, 2).token == 1);
    // Penalties below nothing: -inf stays -inf, whatever is divided, multiplied or subtracted.
    const device::SlotSampling penalised{
        .temperature = 0.0f, .presence_penalty = -2.0f, .frequency_penalty = -2.0f, .repetition_penalty = 0.5f};
    CHECK(sample({5.0f, 1.0f, 4.0f, 0.0f}, penalised, isa, &mask, 3, {0, 2, 2}).token == 1);
  }
}

TEST_CASE("a mask that allows nothing, or only what is -inf already, gives no token and the flag") {
  for (const Isa isa : available_isas()) {
    for (const uint32_t n : {1u, 33u, 50000u}) {
      for (const float temperature : {0.0f, 1.0f}) {
        const Mask nothing(n);
        const device::SampledToken out =
            sample(std::vector<float>(n, 1.0f), {.temperature = temperature}, isa, &nothing);
        CHECK(out.token == -1);
        CHECK(out.nan);
        Mask one(n);
        one.allow(n / 2);
        std::vector<float> logits(n, 1.0f);
        logits[n / 2] = -kInf;
        CHECK(sample(logits, {.temperature = temperature}, isa, &one).token == -1);
        logits[n / 2] = -1e30f;
        CHECK(sample(logits, {.temperature = temperature}, isa, &one).token == static_cast<TokenId>(n / 2));
      }
    }
  }
}

TEST_CASE("a NaN under the mask is a NaN of the row") {
  for (const Isa isa : available_isas()) {
    for (const uint32_t n : {1u, 17u, 40000u}) {
      for (const uint32_t at : {0u, n / 2, n - 1}) {
        std::vector<float> logits(n, 1.0f);
        logits[at] = kNan;
        Mask mask(n, true);
        mask.forbid(at);
        const device::SampledToken out = sample(logits, {.temperature = 0.0f}, isa, &mask);
        CHECK(out.nan);
        CHECK(out.token == -1);
      }
    }
  }
}

TEST_CASE("masks belong to rows: masked and free rows of one command do not touch each other") {
  std::mt19937 random(34);
  constexpr uint32_t kVocab = 70000, kRows = 12;
  Sampler sampler(kRows, kVocab, available_isas().back());
  std::vector<float> logits;
  std::vector<Mask> masks;
  std::vector<device::SampleRow> rows;
  std::vector<TokenId> alone;
  masks.reserve(kRows);
  for (uint32_t i = 0; i < kRows; ++i) {
    const device::SlotSampling sampling{.temperature = i % 4 == 0 ? 0.0f : 1.0f, .seed = i};
    run(sampler.join(SlotId{i}, sampling, {}, {}));
    const std::vector<float> row = random_logits(kVocab, random);
    masks.emplace_back(kVocab, 0.01, random);
    const Mask* mask = i % 3 == 0 ? nullptr : &masks.back();
    alone.push_back(sample(row, sampling, available_isas().back(), mask).token);
    rows.push_back({SlotId{i}, i, 0, mask == nullptr ? nullptr : mask->data()});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  std::vector<device::SampledToken> out(kRows);
  run(sampler.sample({logits.data(), kRows, kVocab, nullptr}, rows, out));
  for (uint32_t i = 0; i < kRows; ++i) CHECK(out[i].token == alone[i]);
}

}  // namespace heddle::cpu
