#pragma once
// What the template tests share: golden files, and rendering variables as they are, without shaping of messages.
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "text/chat_template.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"

namespace heddle::text::test {

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error(path.string() + " is missing (models/templates/ is filled by tools/get_templates)");
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "test/data/templates" / name;
}

inline boost::json::object golden(const std::string& name) { return boost::json::parse(slurp(data(name))).as_object(); }

// 3 February 2026 in local time, as in tools/make_template_goldens.py.
inline std::chrono::system_clock::time_point golden_day() {
  static const auto day = [] {
    std::tm parts{};
    parts.tm_year = 126;
    parts.tm_mon = 1;
    parts.tm_mday = 3;
    parts.tm_hour = 15;
    parts.tm_isdst = -1;
    return std::chrono::system_clock::from_time_t(std::mktime(&parts));
  }();
  return day;
}

// As goldens write an outcome: the text, {"raised": message} or {"failed": true}.
inline boost::json::value render_raw(const std::string& source, const boost::json::object& variables,
                                     TemplateLimits limits = {}) {
  const auto parsed = jinja::parse_template(source, limits);
  if (!parsed) return boost::json::object{{"failed", true}};
  jinja::Runtime rt(limits, golden_day());
  jinja::Interpreter interpreter(*parsed, rt);
  for (const auto& [name, value] : variables) interpreter.define(name, jinja::from_json(rt, value));
  const TracedText text = interpreter.run();
  if (rt.ok()) return boost::json::value(text.bytes());
  if (rt.error().kind == TemplateError::Kind::raised) return boost::json::object{{"raised", rt.error().message}};
  return boost::json::object{{"failed", true}};
}

inline ChatTemplate parsed(std::string_view source, std::string_view bos = "<s>", std::string_view eos = "</s>") {
  auto made = ChatTemplate::parse(source, bos, eos);
  if (!made) throw std::runtime_error(made.error().message);
  return std::move(*made);
}

inline Result<Rendered, TemplateError> render(const ChatTemplate& chat, std::string_view messages,
                                              std::string_view kwargs = "{}", std::string_view tools = "null") {
  ChatInput input;
  input.messages = boost::json::parse(messages);
  input.kwargs = boost::json::parse(kwargs).as_object();
  input.tools = boost::json::parse(tools);
  input.now = golden_day();
  return chat.render(input);
}

}  // namespace heddle::text::test
