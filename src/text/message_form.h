#pragma once
// The shapes in which a template takes messages, and bringing a request's messages into them. OpenAI's API allows more
// shapes than most templates handle; what a template handles is found once, by rendering small probes. Pure functions.
#include <array>
#include <boost/json/value.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace heddle::text {

struct MessageForm {
  // What an assistant message with tool calls and without content gets as its content.
  enum class NoContent { absent, empty, null };

  std::array<ContentStyle, 4> content{};  // system, user, assistant, tool
  NoContent no_content = NoContent::absent;
  bool arguments_as_text = false;  // tool_calls[].function.arguments stays JSON text; otherwise it becomes an object

  ContentStyle style(std::string_view role) const;
};

// render: the text for these messages, or nothing when the template fails on them.
using ProbeRender = std::function<std::optional<std::string>(const boost::json::value& messages)>;
MessageForm probe_form(const ProbeRender& render);

// messages: an array of objects. Also drops fields that are null (but content) and empty lists of tool calls.
boost::json::value shape_messages(const boost::json::value& messages, const MessageForm& form);

}  // namespace heddle::text
