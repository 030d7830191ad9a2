#pragma once
// What the random test knows by itself: which tokens a prompt, its sampling and its grammar determine, and how the
// sequence ends, computed one sequence at a time without scheduler, blocks or steps.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "engine/request.h"
#include "engine/stub_runner.h"
#include "engine/token_masker.h"
#include "sched/config.h"

namespace heddle::engine::random_test {

constexpr TokenId kVocabulary = 50;  // small, so that end tokens and equal prefixes come often

// splitmix64's finaliser.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// A made-up grammar: what may come next is a hash of everything accepted so far. Now and then nothing may, and now and
// then a token that was allowed turns out not to be of the language.
struct Language {
  uint64_t seed = 0;
  uint32_t breadth = 3;    // of 4 tokens, about so many are allowed
  uint32_t dead_ends = 0;  // one state in so many allows nothing; 0: none
  uint32_t surprises = 0;  // one token in so many is not accepted; 0: none
  uint64_t state = 0;

  bool allows(TokenId id) const {
    const uint64_t here = mix(state ^ seed * 0x9E3779B97F4A7C15u);
    if (dead_ends > 0 && here % dead_ends == 0) return false;
    return mix(here + static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u) % 4 < breadth;
  }
  bool accept(TokenId id) {
    state = mix(state + static_cast<uint64_t>(id) + seed + 1);
    return surprises == 0 || state % surprises != 0;
  }
};

class LanguageMasker final : public TokenMasker {
 public:
  explicit LanguageMasker(Language language) : language_(language) {}
  void fill(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    for (TokenId id = 0; id < kVocabulary; ++id)
      if (language_.allows(id)) mask[static_cast<uint32_t>(id) / 32] |= 1u << static_cast<uint32_t>(id) % 32;
  }
  bool accept(TokenId token) override { return language_.accept(token); }

 private:
  Language language_;
};

// What the made-up device gives for a prefix: one row in nan_period holds NaN (0: none).
inline TokenId logits_of(std::span<const TokenId> prefix, uint64_t seed, TokenId nan_period) {
  if (nan_period > 0 && StubRunner::token_after(prefix, ~seed, nan_period) == 0) return -1;
  return StubRunner::token_after(prefix, seed, kVocabulary);
}

struct Question {
  std::vector<TokenId> prefix;
  device::SlotSampling sampling;  // with the sequence's own seed
  uint32_t max_tokens = 1;
  Language* language = nullptr;  // null: no grammar; moves on with the answer
};

struct Expectation {
  std::vector<TokenId> tokens;
  std::optional<Finish> finish;  // none: more would come
};

// The rules that hold for a whole world.
struct Book {
  TokenId primary_eos = 0;
  TokenId nan_period = 0;
  sched::Config limits;

  // Known tokens at which the answer ends with reason length. The last one needs no block, since its row is not
  // computed.
  uint64_t limit(uint64_t n_prompt, uint32_t max_tokens) const {
    const uint64_t pool = uint64_t{limits.n_blocks} * limits.block_size;
    uint64_t n = std::min<uint64_t>(n_prompt + max_tokens, limits.max_model_len);
    const auto covered = [&](uint64_t rows) {
      return std::max(rows, std::min<uint64_t>(rows + limits.n_lookahead, limits.max_model_len));
    };
    while (n > n_prompt + 1 && covered(n - 1) > pool) --n;
    return n;
  }

  // The answer, or its first n_most tokens.
  Expectation answer(Question question, const StopRules& stop,
                     size_t n_most = std::numeric_limits<size_t>::max()) const {
    Expectation out;
    const uint64_t n_limit = limit(question.prefix.size(), question.max_tokens);
    const auto in = [](const std::vector<TokenId>& ids, TokenId id) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    const device::SlotSampling& sampling = question.sampling;
    const auto end = [&](FinishReason reason, TokenId stop_token = -1) {
      out.finish = Finish{.reason = reason, .stop_token = stop_token};
    };
    while (out.tokens.size() < n_most && !out.finish) {
      TokenId token = logits_of(question.prefix, sampling.seed, nan_period);
      const auto banned = [&](TokenId id) {
        return (question.language && !question.language->allows(id)) ||
               (out.tokens.size() < sampling.min_tokens && in(sampling.end_tokens, id));
      };
      for (TokenId tried = 0; token >= 0 && banned(token); ++tried)
        token = tried == kVocabulary ? -1 : (token + 1) % kVocabulary;
      if (token < 0) {
        end(FinishReason::error);
        break;
      }
      out.tokens.push_back(token);
      question.prefix.push_back(token);
      if (token == primary_eos && !stop.ignore_eos)
        end(FinishReason::stop);
      else if (in(stop.token_ids, token) || (!stop.ignore_eos && in(sampling.end_tokens, token)))
        end(FinishReason::stop, token);
      else if (question.prefix.size() >= n_limit)
        end(FinishReason::length);
      const bool ends_by_itself = out.finish && out.finish->reason == FinishReason::stop;
      if (question.language && !ends_by_itself && !question.language->accept(token)) end(FinishReason::error);
    }
    return out;
  }
};

}  // namespace heddle::engine::random_test
