// Hostile templates and messages end with an error, soon, and never with a signal.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "text/template_harness.h"

using namespace heddle::text;
using namespace heddle::text::test;

namespace {

TemplateLimits small() {
  TemplateLimits limits;
  limits.max_steps = 200'000;
  limits.max_bytes = 8 << 20;
  limits.max_output_bytes = 1 << 20;
  limits.max_string_bytes = 1 << 20;
  return limits;
}

TemplateError failure(const std::string& source, const std::string& messages = "[]", TemplateLimits limits = small()) {
  const auto chat = ChatTemplate::parse(source, "", "", limits);
  if (!chat) return {TemplateError::Kind::runtime, "parse: " + chat.error().message};
  const auto rendered = render(*chat, messages);
  if (rendered) return {TemplateError::Kind::runtime, "no error"};
  return rendered.error();
}

std::string repeated(std::string_view text, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}

}  // namespace

TEST_CASE("work without end stops at a limit") {
  const char* endless[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ range(100001) }}",
      "{{ range(99999)|list + range(99999)|list + range(99999)|list }}",
      "{{ [0] * 9999999999 }}",
      "{{ 'x' * 9999999999 }}",
      "{{ '%99999999d' % 1 }}",
      "{{ '{:99999999}'.format(1) }}",
      "{{ 'a'|indent(99999999) }}",
      "{{ 'a'|center(99999999) }}",
      "{{ [1]|tojson(indent=99999999) }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s|replace('', ns.s) %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.join([ns.s] * 9) %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}",
      "{% set ns = namespace(s={}) %}{% for i in range(9999) %}{% set ns.s = {'a': ns.s} %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s]|select %}{% endfor %}",
      "{% set ns = namespace(s='a') %}{% for i in range(9999) %}{% set ns.s = cycler(ns.s) %}{% endfor %}",
      "{% set ns = namespace(s=[1, 1]) %}{% for i in range(150) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
      "{% set ns = namespace(s=[1, 1]) %}{% for i in range(150) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
      "ns.s|tojson }}",
      "{% set a = namespace(s=[1, 1]) %}{% set b = namespace(s=[1, 1]) %}{% for i in range(150) %}{% set a.s = [a.s, "
      "a.s] %}"
      "{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
      "{% set ns = namespace(s=(1, 1)) %}{% for i in range(150) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: "
      "1} }}",
      "{% for i in range(99999) %}{{ 'some text, again and again' }}{% endfor %}",
      "{{ '0123456789'|list|batch(99999999, 'x')|list }}",
      "{{ [1]|slice(99999999)|list }}",
  };
  for (const char* source : endless) {
    CAPTURE(source);
    const auto begin = std::chrono::steady_clock::now();
    const TemplateError error = failure(source);
    CHECK(error.kind == TemplateError::Kind::limit);
    CHECK(error.message.starts_with("chat template line 1: "));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  }
}

TEST_CASE("deep nesting in a template is refused when it is parsed") {
  const std::size_t n = 5000;
  const std::string deep[] = {
      "{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}",
      "{{ " + repeated("[", n) + "1" + repeated("]", n) + " }}",
      "{{ " + repeated("-", n) + "1 }}",
      "{{ " + repeated("not ", n) + "1 }}",
      "{{ 1" + repeated(" + 1", n) + " }}",
      "{{ a" + repeated(".b", n) + " }}",
      "{{ a" + repeated("[0]", n) + " }}",
      "{{ a" + repeated("|upper", n) + " }}",
      "{{ a" + repeated("()", n) + " }}",
      "{{ 1" + repeated(" if 1 else 1", n) + " }}",
      "{{ 1" + repeated(" if 1", n) + " }}",
      "{{ f(" + repeated("f(", n) + repeated(")", n) + ") }}",
      "{{ " + repeated("a is b(", n) + "1" + repeated(")", n) + " }}",
      "{{ " + repeated("{1: ", n) + "1" + repeated("}", n) + " }}",
      "{% set " + repeated("(", n) + "a" + repeated(",)", n) + " = 1 %}",
      repeated("{% if 1 %}", n) + repeated("{% endif %}", n),
      repeated("{% for a in b %}", n) + repeated("{% endfor %}", n),
      repeated("{% macro a() %}", n) + repeated("{% endmacro %}", n),
  };
  for (const std::string& source : deep) {
    CAPTURE(source.substr(0, 40));
    const auto chat = ChatTemplate::parse(source, "", "");
    REQUIRE_FALSE(chat);
    CHECK(chat.error().message.find("nested deeper than 200") != std::string::npos);
  }
}

TEST_CASE("long but flat templates are fine") {
  const std::string chain = "{{ 1" + repeated(" ~ 1", 5000) + " }}";
  CHECK(render_raw(chain, {}).as_string().size() == 5001);
  const std::string cases = "{% if x == 0 %}" + repeated("{% elif x == 1 %}a", 5000) + "{% else %}b{% endif %}";
  CHECK(render_raw(cases, {}).as_string() == "b");
}

TEST_CASE("deep messages are refused") {
  ChatInput input;
  boost::json::value deep = 1;
  for (int i = 0; i < 1000; ++i) deep = boost::json::array{std::move(deep)};
  input.messages = boost::json::array{{{"role", "user"}, {"content", std::move(deep)}}};
  const auto rendered = parsed("{{ messages }}").render(input);
  REQUIRE_FALSE(rendered);
  CHECK(rendered.error().kind == TemplateError::Kind::limit);
}

TEST_CASE("a namespace may hold itself") {
  CHECK(render_raw("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x.x.x is defined }}", {}).as_string() == "True");
  CHECK(render_raw("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ (ns ~ '')|length > 9 }}", {}).as_string() ==
        "True");
  CHECK(render_raw("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a == b }}", {})
            .as_string() == "False");
}

TEST_CASE("what outlives its loop or macro is still there") {
  CHECK(
      render_raw("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% set ns.m = m %}"
                 "{% set ns.l = loop %}{% endfor %}{{ ns.m() }}{{ ns.l.index }}{{ ns.l.changed(ns.l) }}",
                 {})
          .as_string() == "22True");
  CHECK(render_raw("{% set ns = namespace() %}{% macro m(x) %}{{ caller(x) }}{% set ns.c = caller %}{% endmacro %}"
                   "{% for j in [7] %}{% call(q) m(3) %}{{ q }}{{ j }}{% endcall %}{% endfor %}{{ ns.c(4) }}",
                   {})
            .as_string() == "3747");
  CHECK(render_raw("{% set ns = namespace() %}{% for i in [1] recursive %}{% set ns.l = loop %}{{ i }}{% endfor %}{{ "
                   "ns.l([5]) }}",
                   {})
            .as_string() == "15");
}

TEST_CASE("a template over the size limit is refused") {
  TemplateLimits limits;
  limits.max_source_bytes = 10;
  const auto chat = ChatTemplate::parse("0123456789a", "", "", limits);
  REQUIRE_FALSE(chat);
  CHECK(chat.error().message == "chat template: 11 bytes, more than the limit of 10");
}

TEST_CASE("numbers that fit nowhere are errors, not wrong numbers") {
  for (const char* source :
       {"{{ 2 ** 127 }}", "{{ 2 ** 9999999 }}", "{{ 170141183460469231731687303715884105727 + 1 }}",
        "{{ 1"
        "0000000000000000000000000000000000000000 }}",
        "{{ (-2) ** 127 // -1 }}", "{{ 1e300|int }}"}) {
    CAPTURE(source);
    CHECK(render_raw(source, {}).is_object());
  }
}
