#include "api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <cmath>
#include <limits>

#include "api/ascii.h"

namespace heddle::api {
namespace json = boost::json;
namespace {

constexpr size_t kMaxDepth = 64;

// The name of the field whose value was being read at `offset`, for the error text: the last "name": before it.
std::string field_before(std::string_view text, size_t offset) {
  size_t i = std::min(offset, text.size());
  const size_t colon = text.substr(0, i).rfind(':');
  if (colon == std::string_view::npos) return {};
  size_t end = colon;
  while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\n' || text[end - 1] == '\t' || text[end - 1] == '\r'))
    --end;
  if (end == 0 || text[end - 1] != '"') return {};
  const size_t begin = text.substr(0, end - 1).rfind('"');
  if (begin == std::string_view::npos || end - begin > 66) return {};
  return std::string(text.substr(begin + 1, end - begin - 2));
}

std::string plain_number(double v) {
  if (v == std::floor(v) && std::abs(v) < 1e15) return fmt::format("{:.0f}", v);
  return fmt::format("{}", v);
}

bool is_json_media_type(std::string_view content_type) {
  return equals_ignoring_case(trim(content_type.substr(0, content_type.find(';'))), "application/json");
}

}  // namespace

std::string Range::describe() const {
  const bool has_low = std::isfinite(low);
  const bool has_high = std::isfinite(high);
  if (has_low && has_high && open_low)
    return fmt::format("greater than {} and at most {}", plain_number(low), plain_number(high));
  if (has_low && has_high) return fmt::format("between {} and {}", plain_number(low), plain_number(high));
  if (has_low) return fmt::format("{} {}", open_low ? "greater than" : "at least", plain_number(low));
  if (has_high) return fmt::format("at most {}", plain_number(high));
  return "finite";
}

std::string shown(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_double()) return fmt::format("{}", value.get_double());
  std::string text = json::serialize(value);
  constexpr size_t kLimit = 60;
  if (text.size() > kLimit) {
    size_t cut = kLimit;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    text.resize(cut);
    text += "…";
  }
  return text;
}

ApiResult<bool> read_bool(std::string_view path, const json::value& value) {
  if (!value.is_bool())
    return bad_request(std::string(path), fmt::format("`{}` must be true or false, got {}", path, shown(value)));
  return value.get_bool();
}

ApiResult<int64_t> read_integer(std::string_view path, const json::value& value, Range range) {
  int64_t number = 0;
  bool whole = true;
  if (value.is_int64()) {
    number = value.get_int64();
  } else if (value.is_double() && value.get_double() == std::floor(value.get_double()) &&
             std::abs(value.get_double()) < 9e15) {
    number = static_cast<int64_t>(value.get_double());
  } else {
    whole = false;
  }
  if (!whole) {
    // A number too large for 64 bits is out of range rather than of the wrong type.
    const bool huge = value.is_uint64() || (value.is_double() && std::abs(value.get_double()) >= 9e15);
    return bad_request(std::string(path),
                       huge ? fmt::format("`{}` must be {}, got {}", path, range.describe(), shown(value))
                            : fmt::format("`{}` must be a whole number, got {}", path, shown(value)));
  }
  if (!range.contains(static_cast<double>(number)))
    return bad_request(std::string(path), fmt::format("`{}` must be {}, got {}", path, range.describe(), number));
  return number;
}

ApiResult<double> read_number(std::string_view path, const json::value& value, Range range) {
  if (!value.is_number())
    return bad_request(std::string(path), fmt::format("`{}` must be a number, got {}", path, shown(value)));
  const auto number = value.to_number<double>();
  if (!std::isfinite(number) || !range.contains(number))
    return bad_request(std::string(path), fmt::format("`{}` must be {}, got {}", path, range.describe(), number));
  return number;
}

ApiResult<std::string> read_string(std::string_view path, const json::value& value, Range length) {
  if (!value.is_string())
    return bad_request(std::string(path), fmt::format("`{}` must be a string, got {}", path, shown(value)));
  const json::string& text = value.get_string();
  if (!length.contains(static_cast<double>(text.size())))
    return bad_request(std::string(path),
                       fmt::format("`{}` must have a length {} bytes, got {}", path, length.describe(), text.size()));
  return std::string(text);
}

ApiResult<json::object> parse_body(const HttpRequest& request) {
  const auto content_type = request.header("content-type");
  if (!content_type || !is_json_media_type(*content_type))
    return bad_request("", fmt::format("Unsupported Media Type: the Content-Type must be application/json, got {}",
                                       content_type ? fmt::format("'{}'", *content_type) : "none"));
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::stream_parser parser({}, options);
  json::error_code error;
  const size_t parsed = parser.write_some(request.body.data(), request.body.size(), error);
  size_t offset = parsed;
  if (!error && parsed < request.body.size()) {
    const std::string_view rest = std::string_view(request.body).substr(parsed);
    if (rest.find_first_not_of(" \t\r\n") != std::string_view::npos) error = json::error::extra_data;
  }
  if (!error) parser.finish(error);
  if (error) {
    if (request.body.empty()) return bad_request("", "the request body is empty; a JSON object is needed");
    const std::string field = field_before(request.body, offset);
    return bad_request(field,
                       fmt::format("the request body is not valid JSON near byte {}{}: {}", offset,
                                   field.empty() ? "" : fmt::format(" (value of `{}`)", field), error.message()));
  }
  json::value value = parser.release();
  if (!value.is_object())
    return bad_request("", fmt::format("the request body must be a JSON object, got {}", shown(value)));
  return std::move(value.get_object());
}

const json::value* FieldReader::take(std::string_view name) {
  known_.push_back(name);
  const json::value* value = body_.if_contains(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

ApiResult<void> FieldReader::later(std::span<const LaterField> table) {
  for (const LaterField& field : table) {
    const json::value* value = take(field.name);
    if (value != nullptr && !field.neutral(*value))
      return bad_request(
          std::string(field.name),
          fmt::format("`{}` is not supported by this server yet; leave it out, got {}", field.name, shown(*value)));
  }
  return {};
}

void FieldReader::ignore(std::span<const std::string_view> names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

std::vector<std::string> FieldReader::unknown() const {
  std::vector<std::string> names;
  for (const auto& member : body_) {
    if (std::find(known_.begin(), known_.end(), std::string_view(member.key())) == known_.end())
      names.emplace_back(member.key());
  }
  return names;
}

ApiResult<void> FieldReader::assign(std::string_view name, const json::value& value, Range, std::optional<bool>& into) {
  return read_bool(name, value).map([&](bool v) { into = v; });
}
ApiResult<void> FieldReader::assign(std::string_view name, const json::value& value, Range range,
                                    std::optional<int64_t>& into) {
  return read_integer(name, value, range).map([&](int64_t v) { into = v; });
}
ApiResult<void> FieldReader::assign(std::string_view name, const json::value& value, Range range,
                                    std::optional<double>& into) {
  return read_number(name, value, range).map([&](double v) { into = v; });
}
ApiResult<void> FieldReader::assign(std::string_view name, const json::value& value, Range range,
                                    std::optional<std::string>& into) {
  return read_string(name, value, range).map([&](std::string v) { into = std::move(v); });
}

}  // namespace heddle::api
