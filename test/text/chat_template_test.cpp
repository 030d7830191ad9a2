#include "text/chat_template.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "text/template_harness.h"

using namespace heddle::text;
using namespace heddle::text::test;

namespace {

const std::string chatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::string text_of(const ChatTemplate& chat, std::string_view messages, std::string_view kwargs = "{}",
                    std::string_view tools = "null") {
  const auto rendered = render(chat, messages, kwargs, tools);
  return rendered ? rendered->text : "error: " + rendered.error().message;
}

std::string parse_error(std::string_view source) {
  const auto chat = ChatTemplate::parse(source, "", "");
  return chat ? "parsed" : chat.error().message;
}

}  // namespace

TEST_CASE("a parse error names the line and what was expected") {
  CHECK(parse_error("a\n{% if x %}\n{{ y }}\n") ==
        "chat template line 3: unexpected end of the template, expected 'elif' or 'else' or 'endif'");
  CHECK(parse_error("\n{{ a b }}") == "chat template line 2: expected '}}', found 'b'");
  CHECK(parse_error("{% frobnicate %}") == "chat template line 1: unknown tag 'frobnicate'");
  CHECK(parse_error("{% for a in b %}{% endif %}{% endfor %}") ==
        "chat template line 1: unknown tag 'endif', expected 'endfor' or 'else'");
  CHECK(parse_error("{{ 'a }}") == "chat template line 1: missing end of string");
  CHECK(parse_error("{# a\n\n") == "chat template line 1: missing end of comment");
  CHECK(parse_error("{{ (1] }}") == "chat template line 1: unexpected ']', expected ')'");
  CHECK(parse_error("{{ a ? b }}") == "chat template line 1: unexpected character '?'");
  CHECK(parse_error("{% include 'x' %}") ==
        "chat template line 1: 'include' needs other templates, which a chat template doesn't have");
  CHECK(parse_error("{% set true = 1 %}") == "chat template line 1: can't assign to 'true'");
  CHECK(parse_error("{% break %}") == "chat template line 1: 'break' outside of a loop");
  CHECK(parse_error("\xff") == "chat template: not valid UTF-8");
}

TEST_CASE("a failure while rendering names the line") {
  const auto rendered =
      render(parsed("\n\n{{ messages[0].content.nope.more }}"), R"([{"role": "user", "content": "x"}])");
  REQUIRE_FALSE(rendered);
  CHECK(rendered.error().kind == TemplateError::Kind::runtime);
  CHECK(rendered.error().message == "chat template line 3: 'str object' has no attribute 'nope'");
}

TEST_CASE("raise_exception is told apart, with its text as it is") {
  const auto rendered = render(parsed("{{ raise_exception('Roles must alternate: ' ~ messages[0].role) }}"),
                               R"([{"role": "user", "content": "x"}])");
  REQUIRE_FALSE(rendered);
  CHECK(rendered.error().kind == TemplateError::Kind::raised);
  CHECK(rendered.error().message == "Roles must alternate: user");
}

TEST_CASE("a token that the tokenizer doesn't have is undefined") {
  CHECK(text_of(parsed("{{ bos_token is defined }}{{ bos_token }}|{{ eos_token }}", "", "</s>"), "[]") == "False|</s>");
}

TEST_CASE("tools and documents are none when absent or empty") {
  const ChatTemplate chat = parsed("{{ tools is none }}{{ documents is none }}{{ tools is defined }}");
  CHECK(text_of(chat, "[]") == "TrueTrueTrue");
  CHECK(text_of(chat, "[]", "{}", "[]") == "TrueTrueTrue");
  CHECK(text_of(chat, "[]", "{}", R"([{"a": 1}])") == "FalseTrueTrue");
}

TEST_CASE("further variables reach the template but can't replace the messages") {
  const ChatTemplate chat = parsed("{{ enable_thinking }}{{ messages|length }}{{ bos_token }}");
  CHECK(text_of(chat, "[]", R"({"enable_thinking": false, "messages": [1, 2], "bos_token": "b"})") == "False0b");
}

TEST_CASE("strftime_now knows the day and no time of day") {
  const ChatTemplate chat = parsed("{{ strftime_now('%d %b %Y, %A, %H:%M:%S.%f%z %j %-d %%') }}");
  CHECK(text_of(chat, "[]") == "03 Feb 2026, Tuesday, 00:00:00.000000 034 3 %");
}

TEST_CASE("messages that are not a list of objects are refused") {
  const ChatTemplate chat = parsed(chatml);
  CHECK(text_of(chat, "{}") == "error: messages must be a list");
  CHECK(text_of(chat, "[1]") == "error: each of the messages must be an object");
}

TEST_CASE("text parts are joined for a template that takes strings only") {
  const ChatTemplate chat = parsed(chatml);
  for (const char* role : {"system", "user", "assistant"}) CHECK(chat.content_style(role) == ContentStyle::text);
  CHECK(text_of(chat,
                R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])") ==
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n");
  CHECK(text_of(chat, R"([{"role": "user", "content": []}])") ==
        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("a list that would only be printed is joined too") {
  const ChatTemplate chat = parsed("{% for m in messages %}{{ m.content | trim }}{% endfor %}");
  CHECK(chat.content_style("user") == ContentStyle::text);
  CHECK(text_of(chat, R"([{"role": "user", "content": [{"type": "text", "text": " a "}]}])") == "a");
}

TEST_CASE("parts reach a template that handles them, strings stay strings") {
  const ChatTemplate chat = parsed(
      "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% else %}{% for p in m.content %}P{{ p.text "
      "}}"
      "{% endfor %}{% endif %}{% endfor %}");
  CHECK(chat.content_style("user") == ContentStyle::both);
  CHECK(
      text_of(chat,
              R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}])") ==
      "SaPb");
}

TEST_CASE("a string is wrapped into a part for a template that takes lists only") {
  const ChatTemplate chat = parsed(
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
      "{% endfor %}{% endfor %}");
  CHECK(chat.content_style("user") == ContentStyle::parts);
  CHECK(text_of(chat, R"([{"role": "user", "content": "a"}])") == "a");
}

TEST_CASE("the style of content is found for each role by itself") {
  const ChatTemplate chat = parsed(
      "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% else %}"
      "{{ m.content + '.' }}{% endif %}{% endfor %}");
  CHECK(chat.content_style("user") == ContentStyle::parts);
  CHECK(chat.content_style("system") == ContentStyle::text);
  CHECK(chat.content_style("assistant") == ContentStyle::text);
}

TEST_CASE("parts that are not text are left for the template to refuse") {
  const auto rendered =
      render(parsed(chatml), R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  REQUIRE_FALSE(rendered);
  CHECK(rendered.error().kind == TemplateError::Kind::runtime);
}

TEST_CASE("JSON text of tool arguments becomes an object where the template wants one") {
  const char* messages = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls":
      [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1,  \"a\": [\"x\"]}"}}]}])";
  const std::string loop = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}";
  CHECK(text_of(parsed(loop + "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}"), messages) ==
        R"(f{"b": 1, "a": ["x"]})");
  CHECK(text_of(parsed(loop + "{{ c.function.arguments + '' }}{% endfor %}{% endfor %}"), messages) ==
        R"(f{"b": 1,  "a": ["x"]})");
  CHECK(text_of(
            parsed(loop + "{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}{% endfor %}{% endfor %}"),
            messages) == "fba");
}

TEST_CASE("arguments that are not a JSON object stay text") {
  const char* messages = R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls":
      [{"type": "function", "function": {"name": "f", "arguments": "{broken"}}]}])";
  CHECK(text_of(parsed("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}{% "
                       "endfor %}{% endfor %}"),
                messages) == R"("{broken")");
}

TEST_CASE("content that is absent beside tool calls takes the form in which the template shows the calls") {
  const char* call = R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}])";
  const std::string with_null =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": null, )" + std::string(call) + "}]";
  const std::string absent = R"([{"role": "user", "content": "a"}, {"role": "assistant", )" + std::string(call) + "}]";
  const std::string calls =
      "{% for c in m.tool_calls or [] %}[{{ c.function.name }}{{ c.function.arguments }}]{% endfor %}";
  const char* bodies[] = {
      "{{ m.content }}",          // would print None
      "{{ m['content'] + '' }}",  // fails on none and on undefined
      "{% if m.content is none %}{% else %}{{ m.content }}{% set skip = true %}{% endif %}",  // shows calls for none
                                                                                              // only
  };
  for (const char* body : bodies) {
    CAPTURE(body);
    const ChatTemplate chat =
        parsed("{% for m in messages %}" + std::string(body) + "{% if not skip %}" + calls + "{% endif %}{% endfor %}");
    CHECK(text_of(chat, with_null).ends_with("[f{}]"));
    CHECK(text_of(chat, absent).ends_with("[f{}]"));
    CHECK(text_of(chat, with_null).find("None") == std::string::npos);
  }
}

TEST_CASE("null fields and empty tool calls of a message are as if they were absent") {
  const ChatTemplate chat =
      parsed("{% for m in messages %}{{ m.name is defined }}{{ m.tool_calls is defined }}{{ m.content }}{% endfor %}");
  CHECK(text_of(chat, R"([{"role": "assistant", "content": "x", "name": null, "tool_calls": []}])") == "FalseFalsex");
  CHECK(text_of(chat, R"([{"role": "assistant", "content": "x", "name": "n", "tool_calls": null}])") == "TrueFalsex");
}

TEST_CASE("what follows a zero byte is not lost") {
  CHECK(text_of(parsed(chatml), R"([{"role": "user", "content": "a\u0000b"}])") ==
        std::string("<|im_start|>user\na\0b<|im_end|>\n<|im_start|>assistant\n", 53));
}

TEST_CASE("one template renders on many threads at once") {
  const ChatTemplate chat = parsed(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}<{{ x }}>{% endmacro %}{% for m2 in messages %}"
      "{% set ns.n = ns.n + 1 %}{{ m(m2.content) }}{% endfor %}{{ ns.n }}{{ 'é'|upper }}{{ [1, 2]|tojson }}");
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        texts[t] = text_of(chat, R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) CHECK(text == "<a><b>2É[1, 2]");
}
