#pragma once
// The fields that chat and plain completions share: one table each for scalars and for what comes later, and the step
// from their values to an engine request. Pure; any thread.
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/fields.h"
#include "engine/request.h"

namespace heddle::api {

// What the server fixes for every request.
struct GenerationLimits {
  uint32_t vocab_size = 0;
  uint32_t max_model_len = 0;
  std::vector<TokenId> end_tokens;  // the model's end set; the first is the primary eos
};

// As sent; nullopt where absent or null.
struct GenerationFields {
  std::optional<std::string> model, user, request_id, cache_salt;
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k, seed, n, max_tokens, min_tokens, priority, timeout_ms, first_token_timeout_ms;
  std::optional<bool> stream, ignore_eos, skip_special_tokens, include_stop_str_in_output, add_special_tokens;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool include_usage = false;
  bool continuous_usage = false;
};

constexpr int64_t kMaxChoices = 128;
constexpr size_t kMaxStopStrings = 4;
constexpr int64_t kMaxTimeoutMs = 2147483647;  // 24 days

// Reads the shared fields of `body` through `reader`, checking ids against the vocabulary.
ApiResult<GenerationFields> read_generation_fields(FieldReader& reader, const GenerationLimits& limits);

// Everything of an engine request but its id, prompt, arrival, max_tokens and terms (request_terms.h).
engine::Request to_engine_request(const GenerationFields& fields, const GenerationLimits& limits, uint64_t seed);

}  // namespace heddle::api
