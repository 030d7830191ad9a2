#include "api/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace heddle::api {
namespace {

std::optional<std::string> decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

}  // namespace

Result<std::vector<QueryParameter>> parse_query(std::string_view query) {
  std::vector<QueryParameter> parameters;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = decode(pair.substr(0, equals));
    auto value = decode(equals < pair.size() ? pair.substr(equals + 1) : std::string_view{});
    if (!name || !value) return fail(fmt::format("malformed percent escape in `{}`", pair.substr(0, 60)));
    parameters.push_back({std::move(*name), std::move(*value)});
  }
  return parameters;
}

}  // namespace heddle::api
