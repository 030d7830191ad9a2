#include "text/chat_template.h"

#include <boost/json/array.hpp>
#include <utility>

#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"
#include "text/message_form.h"

namespace heddle::text {
namespace {

using jinja::Value;

std::vector<TextSpan> spans_of(const TracedText& text) {
  std::vector<TextSpan> spans;
  std::size_t begin = 0;
  bool request = false;
  const auto close = [&](std::size_t end) {
    if (end > begin) spans.push_back({begin, end, request});
    begin = end;
    request = !request;
  };
  for (const std::size_t border : text.borders()) close(border);
  close(text.size());
  return spans;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template tree;
  std::string bos_token;
  std::string eos_token;
  TemplateLimits limits;
  MessageForm form;

  Result<Rendered, TemplateError> render(const ChatInput& input, const boost::json::value& messages) const;
};

Result<Rendered, TemplateError> ChatTemplate::Impl::render(const ChatInput& input,
                                                           const boost::json::value& messages) const {
  jinja::Runtime rt(limits, input.now);
  jinja::Interpreter interpreter(tree, rt);
  const auto list_or_none = [&](const boost::json::value& json) {
    const bool none = json.is_null() || (json.is_array() && json.get_array().empty());
    return none ? Value::none() : from_json(rt, json);
  };
  if (!bos_token.empty()) interpreter.define("bos_token", Value::literal(bos_token));
  if (!eos_token.empty()) interpreter.define("eos_token", Value::literal(eos_token));
  for (const auto& [name, value] : input.kwargs) interpreter.define(std::string(name), from_json(rt, value));
  interpreter.define("messages", from_json(rt, messages));
  interpreter.define("tools", list_or_none(input.tools));
  interpreter.define("documents", list_or_none(input.documents));
  interpreter.define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  TracedText text;
  if (rt.ok()) text = interpreter.run();
  if (!rt.ok()) return tl::unexpected(rt.error());
  std::vector<TextSpan> spans = spans_of(text);
  return Rendered{std::move(text).take_bytes(), std::move(spans)};
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view bos_token,
                                         std::string_view eos_token, TemplateLimits limits) {
  Result<jinja::Template> tree = jinja::parse_template(source, limits);
  if (!tree) return tl::unexpected(tree.error());
  auto impl =
      std::make_unique<Impl>(Impl{std::move(*tree), std::string(bos_token), std::string(eos_token), limits, {}});
  impl->form = probe_form([&](const boost::json::value& messages) -> std::optional<std::string> {
    Result<Rendered, TemplateError> rendered = impl->render({}, messages);
    if (!rendered) return std::nullopt;
    return std::move(rendered->text);
  });
  return ChatTemplate(std::move(impl));
}

Result<Rendered, TemplateError> ChatTemplate::render(const ChatInput& input) const {
  const boost::json::array* messages = input.messages.if_array();
  if (messages == nullptr)
    return tl::unexpected(TemplateError{TemplateError::Kind::runtime, "messages must be a list"});
  for (const boost::json::value& message : *messages) {
    if (!message.is_object()) {
      return tl::unexpected(TemplateError{TemplateError::Kind::runtime, "each of the messages must be an object"});
    }
  }
  return impl_->render(input, shape_messages(input.messages, impl_->form));
}

ContentStyle ChatTemplate::content_style(std::string_view role) const { return impl_->form.style(role); }

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

}  // namespace heddle::text
