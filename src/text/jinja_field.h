#pragma once
// One field of a formatted string: its layout, and a value laid out by it. Shared by % and format().
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

constexpr long max_field_width = 100'000;  // also of a precision

struct FieldLayout {
  std::string fill = " ";
  char align = 0;  // <, >, ^, = or none given
  char sign = '-';
  bool alternate = false;
  char grouping = 0;  // , or _
  long width = 0;
  long precision = -1;
  char type = 0;
};

// sign_size: bytes of the sign, which align '=' puts before the fill.
TracedText padded(const TracedText& text, const FieldLayout& layout, char align, std::size_t sign_size = 0);
// Digits and suffix of the magnitude of a number, by type; nothing when the type does not fit.
std::optional<std::string> number_text(const Value& value, const FieldLayout& layout, bool& negative);
TracedText format_number(Runtime& rt, const Value& value, const FieldLayout& layout);
TracedText format_value(Runtime& rt, const Value& value, const FieldLayout& layout);

// Digits at `at`; moves behind them. Nothing when there are none.
std::optional<long> digits_at(std::string_view text, std::size_t& at);
// Charges a width or precision; false (and an error) when it is too large.
bool charge_field(Runtime& rt, long n);

}  // namespace heddle::text::jinja
