#include "cpu/sampler.h"

#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "cpu/philox.h"
#include "cpu/sampler_harness.h"

namespace heddle::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(uint32_t n, std::mt19937& random, float spread = 2.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(n);
  for (float& y : logits) y = normal(random);
  return logits;
}

// Draws `n` tokens of one distribution and compares with the reference: no token outside the kept set, and a chi-square
// within five standard deviations of its mean (fixed draws: the outcome does not vary from run to run).
void check_distribution(const std::vector<float>& logits, const device::SlotSampling& sampling, uint32_t n,
                        const std::vector<TokenId>& prompt = {}, const std::vector<TokenId>& generated = {}) {
  CAPTURE(sampling.temperature);
  CAPTURE(sampling.top_k);
  CAPTURE(sampling.top_p);
  CAPTURE(sampling.min_p);
  CAPTURE(sampling.seed);
  const std::vector<double> expected = reference(logits, sampling, prompt, generated);
  std::vector<uint32_t> seen(logits.size());
  for (uint32_t i = 0; i < n; ++i) {
    device::SlotSampling once = sampling;
    once.seed = sampling.seed + i;
    OneSlot slot(static_cast<uint32_t>(logits.size()), once, available_isas().back(), prompt, generated);
    const device::SampledToken out = slot.sample(logits);
    REQUIRE(!out.nan);
    ++seen[static_cast<size_t>(out.token)];
  }
  double chi2 = 0, pooled_expected = 0, pooled_seen = 0;
  int cells = -1;
  for (size_t t = 0; t < logits.size(); ++t) {
    if (seen[t] > 0) CHECK(expected[t] > 0);
    const double e = expected[t] * n;
    if (e < 5) {
      pooled_expected += e;
      pooled_seen += seen[t];
      continue;
    }
    chi2 += (seen[t] - e) * (seen[t] - e) / e;
    ++cells;
  }
  if (pooled_expected > 5) {
    chi2 += (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
    ++cells;
  }
  if (cells > 0) CHECK(chi2 < cells + 5 * std::sqrt(2.0 * cells));
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of its authors' library") {
  // kat_vectors of Random123 1.14.
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}) ==
        std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE(
    "greedy takes the largest logit and the smaller id of equals, at any vocabulary size, on every instruction set") {
  std::mt19937 random(1);
  for (const uint32_t n : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 1000u, 2048u, 2049u, 49152u, 49153u, 262144u}) {
    std::vector<float> logits = random_logits(n, random);
    const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    for (const Isa isa : available_isas()) {
      CAPTURE(n);
      CAPTURE(isa_name(isa));
      OneSlot slot(n, {.temperature = 0.0f}, isa);
      CHECK(slot.sample(logits).token == best);
      std::vector<float> tied = logits;
      const float top = logits[static_cast<size_t>(best)];
      tied[n - 1] = tied[n / 2] = tied[n / 3] = top;
      CHECK(slot.sample(tied).token == std::min(best, static_cast<TokenId>(n / 3)));
      CHECK(slot.sample(std::vector<float>(n, -0.0f)).token == 0);
    }
  }
}

TEST_CASE("every instruction set draws the same token, whatever the parameters") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const uint32_t n = std::uniform_int_distribution<uint32_t>(1, 9000)(random);
    const std::vector<float> logits = random_logits(n, random, 3.0f);
    device::SlotSampling s;
    s.temperature = std::uniform_real_distribution<float>(0.1f, 3.0f)(random);
    if (round % 2) s.top_p = std::uniform_real_distribution<float>(0.0f, 1.0f)(random);
    if (round % 3 == 0) s.top_k = std::uniform_int_distribution<int32_t>(1, 300)(random);
    if (round % 5 == 0) s.min_p = std::uniform_real_distribution<float>(0.0f, 0.5f)(random);
    s.seed = static_cast<uint64_t>(round) << 32;
    CAPTURE(round);
    OneSlot scalar(n, s, Isa::scalar);
    const TokenId token = scalar.sample(logits).token;
    for (const Isa isa : available_isas()) CHECK(OneSlot(n, s, isa).sample(logits).token == token);
  }
}

TEST_CASE("the kept set equals that of a full sort in double precision") {
  // Draws of many seeds hit every likely token of the kept set, and none outside it.
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const uint32_t n = round % 4 == 0 ? 300 : 5000;
    std::vector<float> logits = random_logits(n, random, 2.5f);
    if (round % 3 == 0)
      for (float& y : logits) y = std::round(y * 2) / 2;  // many ties
    device::SlotSampling s;
    s.temperature = round % 2 ? 1.0f : 0.7f;
    if (round % 2) s.top_k = 1 + round * 3;
    if (round % 3) s.top_p = 0.3f + 0.01f * static_cast<float>(round);
    if (round % 5 == 0) s.min_p = 0.05f;
    const std::vector<double> expected = reference(logits, s, {}, {});
    double least = 1;
    size_t n_kept = 0;
    for (const double p : expected)
      if (p > 0) least = std::min(least, p), ++n_kept;
    CAPTURE(round);
    std::vector<bool> seen(n);
    OneSlot slot(n, s, available_isas().back());
    for (uint32_t i = 0; i < 3000; ++i) {
      const auto token = static_cast<size_t>(slot.sample_at(logits, i).token);
      CHECK(expected[token] > 0);
      seen[token] = true;
    }
    for (size_t t = 0; t < n; ++t)
      if (expected[t] > 0.01) CHECK(seen[t]);
  }
}

TEST_CASE("draws follow the distribution of the contract") {
  std::mt19937 random(4);
  const std::vector<float> logits = random_logits(200, random);
  constexpr uint32_t kDraws = 20000;
  check_distribution(logits, {.seed = 100}, kDraws);
  check_distribution(logits, {.temperature = 0.5f, .seed = 200}, kDraws);
  check_distribution(logits, {.temperature = 2.0f, .seed = 300}, kDraws);
  check_distribution(logits, {.top_k = 10, .seed = 400}, kDraws);
  check_distribution(logits, {.top_p = 0.8f, .seed = 500}, kDraws);
  check_distribution(logits, {.min_p = 0.1f, .seed = 600}, kDraws);
  check_distribution(logits, {.temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f, .top_k = 40, .seed = 700}, kDraws);
  device::SlotSampling penalties{
      .presence_penalty = 0.7f, .frequency_penalty = 0.4f, .repetition_penalty = 1.3f, .seed = 800};
  check_distribution(logits, penalties, kDraws, {1, 2, 3, 3}, {3, 4, 5, 5, 5});
  device::SlotSampling biased{.seed = 900};
  biased.logit_bias = {{7, 3.0f}, {8, -100.0f}};
  check_distribution(logits, biased, kDraws);
}

TEST_CASE("a draw from a large vocabulary without limits follows the distribution") {
  // Four groups of tokens with known masses, spread over chunks and parts.
  constexpr uint32_t kVocab = 70000;
  std::vector<float> logits(kVocab, 0.0f);
  const auto group = [](size_t t) { return t % 7 == 0 ? 1 : t > 65000 ? 2 : t < 100 ? 3 : 0; };
  const double weight[] = {1, 3, 10, 50};
  double mass[4] = {}, total = 0;
  for (size_t t = 0; t < kVocab; ++t) {
    logits[t] = static_cast<float>(std::log(weight[group(t)]));
    mass[group(t)] += weight[group(t)];
    total += weight[group(t)];
  }
  OneSlot slot(kVocab, {.seed = 12345}, available_isas().back());
  constexpr uint32_t kDraws = 4000;
  double seen[4] = {};
  for (uint32_t i = 0; i < kDraws; ++i) ++seen[group(static_cast<size_t>(slot.sample_at(logits, i).token))];
  double chi2 = 0;
  for (int g = 0; g < 4; ++g) {
    const double e = kDraws * mass[g] / total;
    chi2 += (seen[g] - e) * (seen[g] - e) / e;
  }
  CHECK(chi2 < 3 + 5 * std::sqrt(6.0));
}

TEST_CASE("a NaN anywhere in the row gives no token and the flag, even where a mask would hide it") {
  for (const Isa isa : available_isas()) {
    for (const uint32_t n : {1u, 17u, 100u, 40000u}) {
      for (const uint32_t at : {0u, n / 2, n - 1}) {
        std::vector<float> logits(n, 1.0f);
        logits[at] = kNan;
        for (const float temperature : {0.0f, 1.0f}) {
          OneSlot slot(n, {.temperature = temperature}, isa);
          const device::SampledToken out = slot.sample(logits);
          CHECK(out.nan);
          CHECK(out.token == -1);
          CHECK(slot.sampler().last_token(SlotId{0}) == -1);
        }
      }
    }
  }
  device::SlotSampling masked{.temperature = 0.0f, .min_tokens = 1};
  masked.end_tokens = {1};
  OneSlot slot(3, masked, Isa::scalar);
  CHECK(slot.sample({0.0f, kNan, 0.0f}).nan);
}

TEST_CASE("infinite logits have a defined end: +inf wins, a row of -inf offers nothing") {
  for (const float temperature : {0.0f, 1.0f}) {
    OneSlot slot(5, {.temperature = temperature}, available_isas().back());
    CHECK(slot.sample({0.0f, kInf, 3.0f, kInf, -kInf}).token == 1);
    CHECK(slot.sample({-kInf, -kInf, 3.0f, -kInf, -kInf}).token == 2);
    const device::SampledToken none = slot.sample(std::vector<float>(5, -kInf));
    CHECK(none.nan);
    CHECK(none.token == -1);
  }
}

TEST_CASE("temperatures down to nothing end in greedy, never in NaN") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> logits = random_logits(3000, random, 4.0f);
    OneSlot greedy(3000, {.temperature = 0.0f}, available_isas().back());
    const TokenId best = greedy.sample(logits).token;
    for (const float temperature : {1e-4f, 9e-5f, 1e-5f, 1e-8f, 1e-30f, 1e-42f, 0.0f, -0.0f}) {
      CAPTURE(temperature);
      for (const float scale : {1.0f, 1e30f}) {  // huge logits over a tiny temperature would overflow
        std::vector<float> scaled = logits;
        for (float& y : scaled) y *= scale;
        OneSlot slot(3000, {.temperature = temperature, .seed = static_cast<uint64_t>(round)}, available_isas().back());
        const device::SampledToken out = slot.sample(scaled);
        CHECK(!out.nan);
        // 1e-4 still resolves gaps above about 1e-3; the two best of these rows lie further apart.
        std::vector<float> sorted = logits;
        std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
        if (logits[static_cast<size_t>(best)] - sorted[1] > 2e-3f) CHECK(out.token == best);
      }
    }
  }
}

TEST_CASE("limits at their edges keep one token or all") {
  std::vector<float> logits = {1.0f, 3.0f, 3.0f, 2.0f};
  const auto tokens_of = [&](const device::SlotSampling& s) {
    std::map<TokenId, int> seen;
    OneSlot slot(4, s, available_isas().back());
    for (uint32_t i = 0; i < 400; ++i) ++seen[slot.sample_at(logits, i).token];
    return seen;
  };
  CHECK(tokens_of({.top_p = 0.0f}).size() == 1);
  CHECK(tokens_of({.top_p = 0.0f}).contains(1));  // the smaller id of the tie
  CHECK(tokens_of({.top_k = 1}).size() == 1);
  CHECK(tokens_of({.top_k = 1}).contains(1));
  CHECK(tokens_of({.min_p = 1.0f}).size() == 2);
  CHECK(tokens_of({.top_k = 1000000000}).size() == 4);
  CHECK(tokens_of({.top_k = -1}).size() == 4);
  CHECK(tokens_of({.top_p = 1.0f, .min_p = 0.0f, .top_k = 0}).size() == 4);
}

TEST_CASE("end tokens are masked until min_tokens were generated") {
  device::SlotSampling s{.temperature = 0.0f, .min_tokens = 3};
  s.end_tokens = {0, 2};
  OneSlot slot(3, s, available_isas().back());
  const std::vector<float> logits = {9.0f, 1.0f, 8.0f};
  CHECK(slot.sample(logits).token == 1);
  CHECK(slot.sample(logits).token == 1);
  CHECK(slot.sample(logits).token == 1);
  CHECK(slot.sample(logits).token == 0);
  // A sequence that was preempted after three tokens goes on where it was.
  CHECK(OneSlot(3, s, available_isas().back(), {1}, {1, 1, 1}).sample(logits).token == 0);
}

TEST_CASE("presence and frequency penalties count generated tokens, the repetition penalty the prompt's too") {
  const std::vector<float> logits = {4.0f, 3.9f, -1.0f};
  const auto first = [&](device::SlotSampling s, std::vector<TokenId> prompt, std::vector<TokenId> generated) {
    s.temperature = 0.0f;
    return OneSlot(3, s, available_isas().back(), std::move(prompt), std::move(generated)).sample(logits).token;
  };
  CHECK(first({.presence_penalty = 2.0f}, {0, 0, 0}, {}) == 0);
  CHECK(first({.frequency_penalty = 2.0f}, {0, 0, 0}, {}) == 0);
  CHECK(first({.repetition_penalty = 1.5f}, {0}, {}) == 1);
  CHECK(first({.presence_penalty = 2.0f}, {}, {0}) == 1);
  CHECK(first({.frequency_penalty = 2.0f}, {}, {0}) == 1);
  CHECK(first({.repetition_penalty = 1.5f}, {}, {0}) == 1);
  // Frequency grows with the count, presence does not.
  CHECK(first({.frequency_penalty = 0.05f}, {}, {0, 0, 0}) == 1);
  CHECK(first({.presence_penalty = 0.05f}, {}, {0, 0, 0}) == 0);
  // A positive logit is divided, a negative one multiplied: both fall.
  CHECK(OneSlot(2, {.temperature = 0.0f, .repetition_penalty = 2.0f}, available_isas().back(), {1})
            .sample({-1.5f, -1.0f})
            .token == 0);
}

TEST_CASE("tokens that a slot samples are counted for its next step") {
  OneSlot slot(3, {.temperature = 0.0f, .frequency_penalty = 1.0f}, available_isas().back());
  const std::vector<float> logits = {4.0f, 3.5f, 0.0f};
  std::vector<TokenId> tokens;
  for (int i = 0; i < 5; ++i) tokens.push_back(slot.sample(logits).token);
  CHECK(tokens == std::vector<TokenId>{0, 1, 0, 1, 0});
}

TEST_CASE("a bias of 100 makes the token sure, one of -100 rules it out") {
  device::SlotSampling s{.temperature = 1.0f};
  s.logit_bias = {{2, 100.0f}};
  OneSlot slot(4, s, available_isas().back());
  for (uint32_t i = 0; i < 50; ++i) CHECK(slot.sample_at({5.0f, 6.0f, -3.0f, 2.0f}, i).token == 2);
}

TEST_CASE("a row's token does not depend on its neighbours, on chunk order or on threads") {
  std::mt19937 random(6);
  constexpr uint32_t kVocab = 70000, kRows = 24;
  std::vector<std::vector<float>> rows;
  std::vector<device::SlotSampling> sampling(kRows);
  std::vector<device::SampledToken> alone;
  for (uint32_t i = 0; i < kRows; ++i) {
    rows.push_back(random_logits(kVocab, random));
    sampling[i] = {.temperature = i % 4 == 0 ? 0.0f : 1.0f,
                   .top_p = i % 3 == 0 ? 0.9f : 1.0f,
                   .top_k = i % 5 == 0 ? 50 : 0,
                   .frequency_penalty = i % 2 ? 0.5f : 0.0f,
                   .seed = i};
    if (i == 7) rows[i][123] = kNan;
    alone.push_back(OneSlot(kVocab, sampling[i], available_isas().back()).sample(rows[i]));
  }
  Sampler sampler(kRows, kVocab, available_isas().back());
  for (int round = 0; round < 10; ++round) {
    std::vector<uint32_t> order(kRows);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<float> logits;
    std::vector<device::SampleRow> sample_rows;
    for (uint32_t r = 0; r < kRows; ++r) {
      run(sampler.join(SlotId{order[r]}, sampling[order[r]], {}, {}));
      logits.insert(logits.end(), rows[order[r]].begin(), rows[order[r]].end());
      sample_rows.push_back({SlotId{order[r]}, r, 0});
    }
    std::vector<device::SampledToken> out(kRows);
    Sampler::Command& command = sampler.sample({logits.data(), kRows, kVocab, nullptr}, sample_rows, out);
    const uint32_t n_chunks = command.n_chunks();
    std::atomic<uint32_t> next{0};
    std::vector<uint32_t> chunks(n_chunks);
    std::iota(chunks.begin(), chunks.end(), 0u);
    std::shuffle(chunks.begin(), chunks.end(), random);
    const auto work = [&] {
      for (uint32_t c = next++; c < n_chunks; c = next++) command.run_chunk(chunks[c]);
    };
    std::thread other(work);
    work();
    other.join();
    for (uint32_t r = 0; r < kRows; ++r) {
      CHECK(out[r].token == alone[order[r]].token);
      CHECK(out[r].nan == alone[order[r]].nan);
      if (!out[r].nan) CHECK(sampler.last_token(SlotId{order[r]}) == out[r].token);
    }
    for (uint32_t r = 0; r < kRows; ++r) run(sampler.leave(SlotId{r}));
  }
}

TEST_CASE("a slot that changes hands keeps nothing of its last sequence") {
  Sampler sampler(1, 4, available_isas().back());
  device::SlotSampling first{.temperature = 0.0f, .presence_penalty = 2.0f, .min_tokens = 9};
  first.end_tokens = {3};
  first.logit_bias = {{0, 50.0f}};
  run(sampler.join(SlotId{0}, first, {}, std::vector<TokenId>{1, 2}));
  CHECK(sampler.last_token(SlotId{0}) == 2);
  run(sampler.leave(SlotId{0}));
  run(sampler.join(SlotId{0}, {.temperature = 0.0f}, {}, {}));
  CHECK(sampler.last_token(SlotId{0}) == -1);
  std::vector<float> logits = {0.0f, 1.0f, 2.0f, 3.0f};
  const device::SampleRow row{SlotId{0}, 0, 0};
  device::SampledToken out;
  run(sampler.sample({logits.data(), 1, 4, nullptr}, {&row, 1}, {&out, 1}));
  CHECK(out.token == 3);
}

TEST_CASE("token counts find what was added, over growth and reuse") {
  TokenCounts counts;
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    std::map<TokenId, std::pair<uint32_t, bool>> expected;
    for (int i = 0; i < 3000; ++i) {
      const auto token = static_cast<TokenId>(random() % 700 * 64);
      if (i % 3 == 0) {
        counts.add_prompt(token);
        expected[token].second = true;
      } else {
        counts.add_generated(token);
        ++expected[token].first;
      }
    }
    CHECK(counts.entries().size() == expected.size());
    for (const TokenCounts::Entry& entry : counts.entries()) {
      CHECK(entry.n_generated == expected[entry.token].first);
      CHECK(entry.in_prompt == expected[entry.token].second);
    }
    counts.clear();
    CHECK(counts.entries().empty());
  }
}

}  // namespace heddle::cpu
