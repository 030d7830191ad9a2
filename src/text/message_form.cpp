#include "text/message_form.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace heddle::text {
namespace {

namespace json = boost::json;

constexpr std::string_view needle = "qzprobeneedlezq";
constexpr std::array<std::string_view, 4> roles = {"system", "user", "assistant", "tool"};

std::size_t role_index(std::string_view role) {
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] == role) return i;
  }
  return role == "developer" ? 0 : 1;
}

bool has(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

json::value message(std::string_view role, json::value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

json::value text_parts(std::string_view text) { return json::array{{{"type", "text"}, {"text", text}}}; }

json::value tool_call(json::value arguments) {
  return {{"id", "call00000"},
          {"type", "function"},
          {"function", {{"name", "probe"}, {"arguments", std::move(arguments)}}}};
}

// The smallest conversation that most templates accept and that holds this content in this role.
json::value conversation(std::string_view role, json::value content) {
  json::array messages;
  if (role == "system") {
    messages = {message("system", std::move(content)), message("user", "hello")};
  } else if (role == "user") {
    messages = {message("user", std::move(content))};
  } else if (role == "assistant") {
    messages = {message("user", "hello"), message("assistant", std::move(content)), message("user", "hello")};
  } else {
    json::value call = message("assistant", nullptr);
    call.as_object()["tool_calls"] = json::array{tool_call(json::object())};
    json::value result = message("tool", std::move(content));
    result.as_object()["tool_call_id"] = "call00000";
    result.as_object()["name"] = "probe";
    messages = {message("user", "hello"), std::move(call), std::move(result)};
  }
  return messages;
}

ContentStyle probe_content(const ProbeRender& render, std::string_view role, const MessageForm& form) {
  const auto rendered = [&](json::value content) {
    return render(shape_messages(conversation(role, std::move(content)), form));
  };
  const bool text = has(rendered(json::string(needle)), needle);
  const std::optional<std::string> from_parts = rendered(text_parts(needle));
  // A list that was merely printed shows its keys.
  const bool parts = has(from_parts, needle) && !has(from_parts, "\"text\"") && !has(from_parts, "'text'");
  if (parts) return text ? ContentStyle::both : ContentStyle::parts;
  return ContentStyle::text;
}

int tool_call_score(const std::optional<std::string>& text) {
  if (!text || has(text, "None")) return 0;
  if (!has(text, needle)) return 1;
  // Escaped quotes: JSON text was made JSON again. Single quotes: an object was printed as Python.
  if (has(text, "\\\"") || has(text, "'" + std::string(needle))) return 2;
  return 3;
}

void probe_tool_calls(const ProbeRender& render, MessageForm& form) {
  using NoContent = MessageForm::NoContent;
  const json::object arguments = {{needle, "value"}};
  int best = -1;
  for (const bool as_text : {false, true}) {
    for (const NoContent no_content : {NoContent::absent, NoContent::empty, NoContent::null}) {
      MessageForm candidate = form;
      candidate.no_content = no_content;
      candidate.arguments_as_text = as_text;
      json::value call = message("assistant", nullptr);
      call.as_object()["tool_calls"] = json::array{tool_call(json::string(json::serialize(arguments)))};
      const int score =
          tool_call_score(render(shape_messages(json::array{message("user", "hello"), std::move(call)}, candidate)));
      if (score <= best) continue;
      best = score;
      form = candidate;
    }
  }
}

std::optional<json::value> joined(const json::value& content) {
  std::string text;
  for (const json::value& part : content.get_array()) {
    const json::object* object = part.if_object();
    const json::value* piece = object ? object->if_contains("text") : nullptr;
    if (piece == nullptr || !piece->is_string()) return std::nullopt;
    if (&part != &content.get_array().front()) text += '\n';
    text += std::string_view(piece->get_string());
  }
  return json::value(text);
}

void shape_content(json::object& message, ContentStyle style) {
  json::value* content = message.if_contains("content");
  if (content == nullptr) return;
  if (style == ContentStyle::parts && content->is_string()) {
    *content = text_parts(content->get_string());
  } else if (style == ContentStyle::text && content->is_array()) {
    // A part that is not text stays for the template to refuse.
    if (std::optional<json::value> text = joined(*content)) *content = std::move(*text);
  }
}

void shape_tool_calls(json::object& message, const MessageForm& form) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr || content->is_null()) {
    message.erase("content");
    if (form.no_content == MessageForm::NoContent::empty) message["content"] = "";
    if (form.no_content == MessageForm::NoContent::null) message["content"] = nullptr;
  }
  if (form.arguments_as_text || !message["tool_calls"].is_array()) return;
  for (json::value& call : message["tool_calls"].get_array()) {
    json::object* object = call.if_object();
    json::value* function = object ? object->if_contains("function") : nullptr;
    json::value* arguments =
        function && function->is_object() ? function->get_object().if_contains("arguments") : nullptr;
    if (arguments == nullptr || !arguments->is_string()) continue;
    boost::system::error_code error;
    json::value parsed = json::parse(arguments->get_string(), error);
    if (!error && parsed.is_object()) *arguments = std::move(parsed);
  }
}

}  // namespace

ContentStyle MessageForm::style(std::string_view role) const { return content[role_index(role)]; }

MessageForm probe_form(const ProbeRender& render) {
  MessageForm form;
  form.content.fill(ContentStyle::both);
  // The user's style first: the other probes contain a user message.
  form.content[1] = probe_content(render, "user", form);
  probe_tool_calls(render, form);
  for (const std::size_t i : {0, 2, 3}) form.content[i] = probe_content(render, roles[i], form);
  return form;
}

json::value shape_messages(const json::value& messages, const MessageForm& form) {
  json::array out;
  for (const json::value& source : messages.get_array()) {
    json::object message;
    for (const auto& [key, value] : source.get_object()) {
      const bool dropped = (value.is_null() && key != "content") ||
                           (key == "tool_calls" && value.is_array() && value.get_array().empty());
      if (!dropped) message[key] = value;
    }
    const json::value* role = message.if_contains("role");
    shape_content(message, form.style(role && role->is_string() ? std::string_view(role->get_string()) : "user"));
    if (message.contains("tool_calls")) shape_tool_calls(message, form);
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace heddle::text
