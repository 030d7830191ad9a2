#pragma once
// The body of POST /v1/completions, validated. Pure; any thread.
#include <boost/json/object.hpp>
#include <string>
#include <variant>
#include <vector>

#include "api/generation_fields.h"

namespace heddle::api {

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationFields fields;
  std::vector<PromptInput> prompts;  // 1 to 1024
  std::vector<std::string> warnings;
};

constexpr size_t kMaxPrompts = 1024;

ApiResult<CompletionRequest> read_completion_request(const boost::json::object& body, const GenerationLimits& limits);

// `tokens` as a list of ids inside the vocabulary; also the body of /detokenize.
ApiResult<std::vector<TokenId>> read_token_ids(std::string_view path, const boost::json::value& value,
                                               uint32_t vocab_size);

}  // namespace heddle::api
