// Fuzz entry of the template engine: a template, a zero byte, then messages as JSON. Whatever either holds, parsing and
// rendering return; the text is UTF-8 and the spans cover it.
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/chat_template.h"
#include "text/python_str.h"

namespace {

using heddle::text::ChatInput;
using heddle::text::ChatTemplate;
using heddle::text::Rendered;
using heddle::text::TemplateLimits;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Rendered& rendered) {
  require(heddle::text::pystr::valid_utf8(rendered.text));
  std::size_t at = 0;
  bool first = true, side = false;
  for (const auto& span : rendered.spans) {
    require(span.begin == at && span.end > at && (first || span.from_request != side));
    at = span.end;
    side = span.from_request;
    first = false;
  }
  require(at == rendered.text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  const std::string_view source = input.substr(0, cut);
  const std::string_view json = cut == std::string_view::npos ? std::string_view() : input.substr(cut + 1);

  TemplateLimits limits;  // small, so that every input is quick
  limits.max_steps = 20'000;
  limits.max_bytes = 1 << 20;
  limits.max_output_bytes = limits.max_string_bytes = 1 << 18;
  const auto parsed = ChatTemplate::parse(source, "<s>", "</s>", limits);
  if (!parsed) return 0;

  ChatInput chat;
  boost::system::error_code error;
  chat.messages = boost::json::parse(json, error);
  if (error) chat.messages = boost::json::parse(R"([{"role": "user", "content": "hello <s> \u00e9"}])");
  if (chat.messages.is_array()) chat.kwargs["value"] = chat.messages;
  if (const auto rendered = parsed->render(chat)) check(*rendered);
  return 0;
}
