#pragma once
// Whether a token ends its sequence: a pure function, in the order that clients of vLLM expect (vLLM v1 check_stop):
//   1. the model's primary eos: stop, no stop token reported
//   2. any other end token, or one the request names: stop, its id reported
//   3. the limit of known tokens: length
// ignore_eos drops 1 and the model's part of 2. min_tokens is not looked at: it masks the end tokens before sampling.
// Stop strings come after, on text (OutputProcessor), and win over length.
#include <optional>
#include <span>

#include "engine/request.h"

namespace heddle::engine {

struct EndRules {
  TokenId primary_eos = -1;
  std::span<const TokenId> end_tokens;   // the model's and the request's
  std::span<const TokenId> stop_tokens;  // the request's alone
  bool ignore_eos = false;
};

struct TokenEnd {
  FinishReason reason = FinishReason::stop;
  TokenId stop_token = -1;
};

// n_known: tokens of the sequence with this one. A few compares on the way of every token.
std::optional<TokenEnd> check_token(const EndRules& rules, TokenId token, uint32_t n_known, uint32_t n_limit);

}  // namespace heddle::engine
