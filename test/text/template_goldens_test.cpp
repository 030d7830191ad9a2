// Byte for byte against Jinja2 in transformers' environment; goldens by tools/make_template_goldens.py.
#include <doctest/doctest.h>

#include <fmt/format.h>
#include <boost/json/serialize.hpp>
#include <cstdint>

#include "text/template_harness.h"

using namespace heddle::text;
using namespace heddle::text::test;
namespace json = boost::json;

namespace {

json::object variables_of(const json::object& given, std::string_view bos, std::string_view eos) {
  json::object variables;
  variables["messages"] = given.at("messages");
  variables["tools"] = given.contains("tools") ? given.at("tools") : json::value();
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] =
      !given.contains("add_generation_prompt") || given.at("add_generation_prompt").as_bool();
  if (!bos.empty()) variables["bos_token"] = bos;
  if (!eos.empty()) variables["eos_token"] = eos;
  if (const json::value* more = given.if_contains("kwargs")) {
    for (const auto& [name, value] : more->as_object()) variables[name] = value;
  }
  return variables;
}

std::string fnv1a(const json::value& output) {
  const std::string text = output.is_string() ? std::string(output.get_string()) : json::serialize(output);
  std::uint64_t digest = 0xCBF29CE484222325;
  for (const char byte : text) digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  return fmt::format("{:016x}", digest);
}

std::string template_source(const std::string& name, const json::object& file) {
  if (std::filesystem::exists(data(name + ".jinja"))) return slurp(data(name + ".jinja"));
  const std::string source(file.at("source").as_string());
  return slurp(std::filesystem::path(HEDDLE_SOURCE_DIR) / "models/templates" / source.substr(source.rfind('/') + 1));
}

constexpr const char* families[] = {"smollm2",      "qwen2.5",           "qwen3",     "deepseek-r1",
                                    "mistral-nemo", "mistral-small-3.2", "llama-3.1", "gemma-3"};

}  // namespace

TEST_CASE("every feature of the language gives what Jinja2 gives") {
  const json::object file = golden("snippets.json");
  const json::object& variables = file.at("variables").as_object();
  CHECK(file.at("snippets").as_array().size() > 120);
  for (const json::value& snippet : file.at("snippets").as_array()) {
    const std::string source(snippet.at("template").as_string());
    CAPTURE(snippet.at("name").as_string().c_str());
    CAPTURE(source);
    CHECK(json::serialize(render_raw(source, variables)) == json::serialize(snippet.at("output")));
  }
}

TEST_CASE("the templates of eight model families render as in Jinja2") {
  const json::object cases = golden("cases.json");
  for (const std::string name : families) {
    const json::object file = golden(name + ".json");
    const std::string source = template_source(name, file);
    for (const auto& [title, given] : cases) {
      CAPTURE(name);
      const std::string case_name(title);
      CAPTURE(case_name);
      const auto variables =
          variables_of(given.as_object(), file.at("bos_token").as_string(), file.at("eos_token").as_string());
      CHECK(json::serialize(render_raw(source, variables)) == json::serialize(file.at("outputs").at(title)));
    }
  }
}

TEST_CASE("every other public template at hand renders as in Jinja2") {
  const json::object cases = golden("cases.json");
  const json::object digests = golden("digests.json");
  CHECK(digests.size() > 60);
  for (const auto& [file, expected] : digests) {
    const std::string source = slurp(std::filesystem::path(HEDDLE_SOURCE_DIR) / "models/templates" / std::string(file));
    for (const auto& [title, given] : cases) {
      const std::string file_name(file);
      CAPTURE(file_name);
      const std::string case_name(title);
      CAPTURE(case_name);
      const json::value output = render_raw(source, variables_of(given.as_object(), "<s>", "</s>"));
      CHECK(fnv1a(output) == std::string(expected.at(title).as_string()));
    }
  }
}

TEST_CASE("the chat template's own interface gives the same text for plain conversations") {
  const json::object cases = golden("cases.json");
  for (const std::string name : families) {
    const json::object file = golden(name + ".json");
    const ChatTemplate chat = parsed(template_source(name, file), std::string(file.at("bos_token").as_string()),
                                     std::string(file.at("eos_token").as_string()));
    for (const char* title : {"one turn", "one turn, no generation prompt", "many turns", "system", "thinking off",
                              "tools", "thinking in the history", "bad order", "two users"}) {
      CAPTURE(name);
      CAPTURE(title);
      const json::object& given = cases.at(title).as_object();
      ChatInput input;
      input.messages = given.at("messages");
      if (given.contains("tools")) input.tools = given.at("tools");
      if (given.contains("kwargs")) input.kwargs = given.at("kwargs").as_object();
      input.add_generation_prompt =
          !given.contains("add_generation_prompt") || given.at("add_generation_prompt").as_bool();
      input.now = golden_day();
      const auto rendered = chat.render(input);
      const json::value& expected = file.at("outputs").at(title);
      if (expected.is_string()) {
        REQUIRE(rendered);
        CHECK(rendered->text == std::string(expected.as_string()));
      } else {
        REQUIRE_FALSE(rendered);
        if (expected.as_object().contains("raised")) {
          CHECK(rendered.error().kind == TemplateError::Kind::raised);
          CHECK(rendered.error().message == std::string(expected.at("raised").as_string()));
        }
      }
    }
  }
}
