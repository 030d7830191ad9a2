// The configuration file: TOML, one key a flag. Separate from options.cpp because toml++ is a large header.
#include <fmt/format.h>

#include <toml++/toml.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "app/options.h"

namespace heddle::app {
namespace {

// A scalar as the text that the flag would take; empty if it is none.
std::string scalar_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  return {};
}

}  // namespace

Result<void> apply_config_file(CLI::App& command, const std::string& path) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    return fail(line > 0 ? fmt::format("--config {}: line {}: {}", path, line, error.description())
                         : fmt::format("--config {}: {}", path, error.description()));
  }
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::replace(name.begin(), name.end(), '_', '-');
    CLI::Option* option = command.get_option_no_throw("--" + name);
    if (option == nullptr || name == "config" || name == "help")
      return fail(fmt::format("--config {}: line {}: unknown key '{}'", path, node.source().begin.line,
                              std::string(key.str())));
    std::vector<std::string> values;
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& item : *list) values.push_back(scalar_text(item));
    } else {
      values.push_back(scalar_text(node));
    }
    const bool odd = std::any_of(values.begin(), values.end(), [](const std::string& v) { return v.empty(); });
    if (odd || values.empty())
      return fail(fmt::format("--config {}: line {}: '{}' must be a value or a list of values", path,
                              node.source().begin.line, name));
    if (option->count() > 0) continue;  // the flag wins
    try {
      for (std::string& value : values) option->add_result(std::move(value));
      option->run_callback();
    } catch (const CLI::Error& error) {
      return fail(fmt::format("--config {}: line {}: {}", path, node.source().begin.line, error.what()));
    }
  }
  return {};
}

}  // namespace heddle::app
