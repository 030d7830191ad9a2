#pragma once
// Python's operators on values. Every failure is an error in rt and an undefined result.
#include <cstdint>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

Value arithmetic(Runtime& rt, Operator op, const Value& left, const Value& right);
Value negate(Runtime& rt, const Value& value);
Value positive(Runtime& rt, const Value& value);
bool compare(Runtime& rt, Operator op, const Value& left, const Value& right);
bool less(Runtime& rt, const Value& left, const Value& right);  // for sorting: false when they can't be compared
bool contains(Runtime& rt, const Value& container, const Value& item);

// text with &, <, >, " and ' as HTML entities.
TracedText escape_html(Runtime& rt, const TracedText& text);
// str(value), escaped unless it is markup already.
TracedText escaped_text(Runtime& rt, const Value& value);

}  // namespace heddle::text::jinja
