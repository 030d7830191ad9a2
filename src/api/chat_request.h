#pragma once
// The body of POST /v1/chat/completions, validated. Pure; any thread.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/generation_fields.h"
#include "text/chat_template.h"

namespace heddle::api {

struct ChatRequest {
  GenerationFields fields;
  text::ChatInput input;  // checked messages and template arguments
  std::vector<std::string> warnings;
};

ApiResult<ChatRequest> read_chat_request(const boost::json::object& body, const GenerationLimits& limits);

// The part that /tokenize shares: messages, add_generation_prompt, chat_template_kwargs.
ApiResult<text::ChatInput> read_chat_input(FieldReader& reader, std::vector<std::string>& warnings);

}  // namespace heddle::api
