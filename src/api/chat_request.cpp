#include "api/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::api {
namespace json = boost::json;
namespace {

struct ChatFields {
  std::optional<bool> add_generation_prompt;
  std::optional<int64_t> max_completion_tokens;
};

const Field<ChatFields> kScalars[] = {
    {"add_generation_prompt", &ChatFields::add_generation_prompt},
    {"max_completion_tokens", &ChatFields::max_completion_tokens, {1, 9.2e18}},
};

bool is_false(const json::value& v) { return v.is_bool() && !v.get_bool(); }

const LaterField kLater[] = {
    {"logprobs", is_false},
    {"top_logprobs", [](const json::value& v) { return v.is_int64() && v.get_int64() == 0; }},
    {"tools", [](const json::value&) { return false; }},
    {"tool_choice", [](const json::value& v) { return v.is_string() && v.get_string() == "none"; }},
    {"parallel_tool_calls", [](const json::value& v) { return v.is_bool(); }},
    {"functions", [](const json::value&) { return false; }},
    {"function_call", [](const json::value& v) { return v.is_string() && v.get_string() == "none"; }},
    {"reasoning_effort", [](const json::value&) { return false; }},
    {"include_reasoning", [](const json::value& v) { return v.is_bool() && v.get_bool(); }},
    {"continue_final_message", is_false},
    {"documents", [](const json::value& v) { return v.is_array() && v.get_array().empty(); }},
    {"chat_template", [](const json::value&) { return false; }},
    {"media_io_kwargs", [](const json::value&) { return false; }},
    {"mm_processor_kwargs", [](const json::value&) { return false; }},
    {"web_search_options", [](const json::value&) { return false; }},
};

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant"};
constexpr std::string_view kMessageFields[] = {"role",       "content",       "name",  "refusal",
                                               "tool_calls", "function_call", "audio", "annotations"};

std::string path_of(size_t message, std::string_view field) { return fmt::format("messages[{}].{}", message, field); }

ApiResult<void> check_part(const json::value& part, const std::string& path) {
  if (!part.is_object())
    return bad_request(path, fmt::format("`{}` must be an object with a type, got {}", path, shown(part)));
  const json::value* type = part.get_object().if_contains("type");
  if (type == nullptr || !type->is_string())
    return bad_request(path + ".type", fmt::format("`{}.type` must be a string", path));
  if (type->get_string() != "text" && type->get_string() != "refusal")
    return bad_request(path + ".type",
                       fmt::format("`{}.type` must be \"text\" for this model, got {}", path, shown(*type)));
  const std::string field = type->get_string() == "text" ? "text" : "refusal";
  const json::value* text = part.get_object().if_contains(field);
  if (text == nullptr || !text->is_string())
    return bad_request(path + "." + field, fmt::format("`{}.{}` must be a string", path, field));
  return {};
}

// Checks one message and returns it as the template will see it: text parts only, no nulls.
ApiResult<json::object> read_message(const json::value& value, size_t index, std::vector<std::string>& warnings) {
  const std::string path = fmt::format("messages[{}]", index);
  if (!value.is_object()) return bad_request(path, fmt::format("`{}` must be an object, got {}", path, shown(value)));
  const json::object& in = value.get_object();
  const json::value* role = in.if_contains("role");
  if (role == nullptr || !role->is_string())
    return bad_request(path_of(index, "role"),
                       fmt::format("`{}` must be one of system, developer, user, assistant", path_of(index, "role")));
  if (std::find(std::begin(kRoles), std::end(kRoles), std::string_view(role->get_string())) == std::end(kRoles))
    return bad_request(path_of(index, "role"),
                       fmt::format("`{}` must be one of system, developer, user, assistant, got {}",
                                   path_of(index, "role"), shown(*role)));
  for (std::string_view field : {"tool_calls", "function_call", "audio"}) {
    const json::value* later = in.if_contains(field);
    const bool empty = later == nullptr || later->is_null() || (later->is_array() && later->get_array().empty());
    if (!empty)
      return bad_request(path_of(index, field),
                         fmt::format("`{}` is not supported by this server yet", path_of(index, field)));
  }
  json::object out;
  // A developer message is what newer clients call the system message; the templates know only the latter.
  out["role"] = role->get_string() == "developer" ? json::value("system") : *role;
  const bool assistant = role->get_string() == "assistant";
  const json::value* content = in.if_contains("content");
  if (content == nullptr || content->is_null()) {
    if (!assistant)
      return bad_request(path_of(index, "content"),
                         fmt::format("`{}` must be a string or a list of text parts", path_of(index, "content")));
    out["content"] = "";
  } else if (content->is_string()) {
    out["content"] = *content;
  } else if (content->is_array()) {
    json::array parts;
    for (size_t i = 0; i < content->get_array().size(); ++i) {
      const json::value& part = content->get_array()[i];
      ApiResult<void> checked = check_part(part, fmt::format("{}[{}]", path_of(index, "content"), i));
      if (!checked) return tl::unexpected(checked.error());
      const json::value* text = part.get_object().if_contains("text");
      if (text == nullptr) text = part.get_object().if_contains("refusal");
      parts.push_back(json::object{{"type", "text"}, {"text", *text}});
    }
    if (parts.empty() && !assistant)
      return bad_request(path_of(index, "content"),
                         fmt::format("`{}` must hold at least one part", path_of(index, "content")));
    out["content"] = std::move(parts);
  } else {
    return bad_request(path_of(index, "content"), fmt::format("`{}` must be a string or a list of text parts, got {}",
                                                              path_of(index, "content"), shown(*content)));
  }
  if (const json::value* name = in.if_contains("name"); name != nullptr && !name->is_null()) {
    if (!name->is_string())
      return bad_request(path_of(index, "name"),
                         fmt::format("`{}` must be a string, got {}", path_of(index, "name"), shown(*name)));
    out["name"] = *name;
  }
  for (const auto& member : in) {
    if (std::find(std::begin(kMessageFields), std::end(kMessageFields), std::string_view(member.key())) ==
        std::end(kMessageFields))
      warnings.push_back(fmt::format("unknown field `{}` was ignored", path_of(index, std::string_view(member.key()))));
  }
  return out;
}

}  // namespace

ApiResult<text::ChatInput> read_chat_input(FieldReader& reader, std::vector<std::string>& warnings) {
  text::ChatInput input;
  ChatFields scalars;
  ApiResult<void> read = reader.scalars(std::span<const Field<ChatFields>>(kScalars, 1), scalars);
  if (!read) return tl::unexpected(read.error());
  input.add_generation_prompt = scalars.add_generation_prompt.value_or(true);
  const json::value* messages = reader.take("messages");
  if (messages == nullptr || !messages->is_array())
    return bad_request("messages", messages == nullptr
                                       ? "`messages` is missing: it must be a list of messages"
                                       : fmt::format("`messages` must be a list, got {}", shown(*messages)));
  if (messages->get_array().empty()) return bad_request("messages", "`messages` must hold at least one message");
  json::array checked;
  for (size_t i = 0; i < messages->get_array().size(); ++i) {
    ApiResult<json::object> message = read_message(messages->get_array()[i], i, warnings);
    if (!message) return tl::unexpected(message.error());
    checked.push_back(std::move(*message));
  }
  input.messages = std::move(checked);
  if (const json::value* kwargs = reader.take("chat_template_kwargs")) {
    if (!kwargs->is_object())
      return bad_request("chat_template_kwargs",
                         fmt::format("`chat_template_kwargs` must be an object, got {}", shown(*kwargs)));
    input.kwargs = kwargs->get_object();
  }
  return input;
}

ApiResult<ChatRequest> read_chat_request(const json::object& body, const GenerationLimits& limits) {
  FieldReader reader(body);
  ChatRequest request;
  auto fields = read_generation_fields(reader, limits);
  if (!fields) return tl::unexpected(fields.error());
  request.fields = std::move(*fields);
  ChatFields scalars;
  ApiResult<void> read = reader.scalars(std::span<const Field<ChatFields>>(kScalars), scalars);
  if (!read) return tl::unexpected(read.error());
  if (scalars.max_completion_tokens) request.fields.max_tokens = scalars.max_completion_tokens;
  read = reader.later(kLater);
  if (!read) return tl::unexpected(read.error());
  auto input = read_chat_input(reader, request.warnings);
  if (!input) return tl::unexpected(input.error());
  request.input = std::move(*input);
  for (const std::string& name : reader.unknown())
    request.warnings.push_back(fmt::format("unknown field `{}` was ignored", name));
  return request;
}

}  // namespace heddle::api
