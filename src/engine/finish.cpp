#include "engine/finish.h"

#include <algorithm>

namespace heddle::engine {
namespace {
bool has(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}
}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

std::optional<TokenEnd> check_token(const EndRules& rules, TokenId token, uint32_t n_known, uint32_t n_limit) {
  if (!rules.ignore_eos && token == rules.primary_eos) return TokenEnd{FinishReason::stop, -1};
  if (has(rules.stop_tokens, token) || (!rules.ignore_eos && has(rules.end_tokens, token)))
    return TokenEnd{FinishReason::stop, token};
  if (n_known >= n_limit) return TokenEnd{FinishReason::length, -1};
  return std::nullopt;
}

}  // namespace heddle::engine
