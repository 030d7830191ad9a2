#pragma once
// Reading a JSON body by a declared table: each field's name, type and range stand once, and give the validation and
// its error texts. A null is the same as an absent field. Fields that no table names are collected as unknown.
#include <boost/json/object.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"

namespace heddle::api {

// Closed unless `open_low`. A NaN is in no range.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;
  bool contains(double v) const { return (open_low ? v > low : v >= low) && v <= high; }
  std::string describe() const;  // "between 0 and 2", "greater than 0", "at least 1"
};

// A scalar field of the struct S.
template <class S>
struct Field {
  using Member = std::variant<std::optional<bool> S::*, std::optional<int64_t> S::*, std::optional<double> S::*,
                              std::optional<std::string> S::*>;
  std::string_view name;
  Member member;
  Range range{};  // of numbers, or of a string's length in bytes
};

// A field that belongs to a feature heddle does not have yet: a value that changes nothing is accepted, any other
// refused.
struct LaterField {
  std::string_view name;
  bool (*neutral)(const boost::json::value&);
};

ApiResult<bool> read_bool(std::string_view path, const boost::json::value& value);
ApiResult<int64_t> read_integer(std::string_view path, const boost::json::value& value, Range range);
ApiResult<double> read_number(std::string_view path, const boost::json::value& value, Range range);
ApiResult<std::string> read_string(std::string_view path, const boost::json::value& value, Range length);

// What was sent, short, for an error text: "3", "\"abc\"", "an object".
std::string shown(const boost::json::value& value);

// The body as an object, or the 400 that says where the text stops being JSON and after which field.
ApiResult<boost::json::object> parse_body(const HttpRequest& request);

class FieldReader {
 public:
  explicit FieldReader(const boost::json::object& body) : body_(body) {}

  // Non-null value of a field, marked as known.
  const boost::json::value* take(std::string_view name);

  template <class S>
  ApiResult<void> scalars(std::span<const Field<S>> table, S& into) {
    for (const Field<S>& field : table) {
      const boost::json::value* value = take(field.name);
      if (value == nullptr) continue;
      ApiResult<void> read =
          std::visit([&](auto member) { return assign(field.name, *value, field.range, into.*member); }, field.member);
      if (!read) return read;
    }
    return {};
  }
  ApiResult<void> later(std::span<const LaterField> table);
  void ignore(std::span<const std::string_view> names);

  std::vector<std::string> unknown() const;  // in the body's order

 private:
  static ApiResult<void> assign(std::string_view name, const boost::json::value& value, Range range,
                                std::optional<bool>& into);
  static ApiResult<void> assign(std::string_view name, const boost::json::value& value, Range range,
                                std::optional<int64_t>& into);
  static ApiResult<void> assign(std::string_view name, const boost::json::value& value, Range range,
                                std::optional<double>& into);
  static ApiResult<void> assign(std::string_view name, const boost::json::value& value, Range range,
                                std::optional<std::string>& into);

  const boost::json::object& body_;
  std::vector<std::string_view> known_;
};

}  // namespace heddle::api
