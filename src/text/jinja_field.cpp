#include "text/jinja_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_repr.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

std::string digits_of(unsigned __int128 value, unsigned base, bool upper) {
  const char* symbols = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do out.push_back(symbols[static_cast<unsigned>(value % base)]);
  while ((value /= base) != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

void group(std::string& digits, char separator, std::size_t every) {
  const std::size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (std::size_t at = end; at > every; at -= every) digits.insert(at - every, 1, separator);
}

}  // namespace

TracedText padded(const TracedText& text, const FieldLayout& layout, char align, std::size_t sign_size) {
  const auto length = static_cast<long>(pystr::length(text.bytes()));
  if (length >= layout.width) return text;
  const auto missing = static_cast<std::size_t>(layout.width - length);
  std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  TracedText out;
  const auto fill = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out.append(layout.fill, false);
  };
  if (align == '=') {
    out.append(text, 0, sign_size);
    fill(missing);
    out.append(text, sign_size, text.size());
    return out;
  }
  fill(left);
  out.append(text);
  fill(missing - left);
  return out;
}

std::optional<std::string> number_text(const Value& value, const FieldLayout& layout, bool& negative) {
  char type = layout.type;
  std::string out;
  const bool integral = value.is_integral();
  if (type == 0) type = integral ? 'd' : 'r';
  switch (type) {
    case 'd':
    case 'n':
    case 'b':
    case 'o':
    case 'x':
    case 'X': {
      if (!integral) return std::nullopt;
      const Integer number = value.integer();
      negative = number < 0;
      const auto magnitude =
          negative ? ~static_cast<unsigned __int128>(number) + 1 : static_cast<unsigned __int128>(number);
      const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : (type | 0x20) == 'x' ? 16 : 10;
      out = digits_of(magnitude, base, type == 'X');
      if (layout.grouping != 0) group(out, layout.grouping, base == 10 ? 3 : 4);
      if (layout.alternate && base != 10) out.insert(0, std::string("0") + type);
      return out;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
    case 'r': {
      double number = value.real();
      negative = std::signbit(number) && !std::isnan(number);
      number = std::fabs(number);
      const int precision = static_cast<int>(std::min(layout.precision < 0 ? 6L : layout.precision, 400L));
      if (type == 'r') {
        out = layout.precision < 0 ? float_text(number) : fixed_text(number, std::max(precision, 1), 'g');
      } else if (type == '%') {
        out = fixed_text(number * 100, precision, 'f') + "%";
      } else {
        const char lower = static_cast<char>(type | 0x20);
        out = fixed_text(number, lower == 'g' ? std::max(precision, 1) : precision, lower);
        if (lower != type) {
          std::transform(out.begin(), out.end(), out.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c & ~0x20) : c; });
        }
      }
      if (layout.grouping != 0) group(out, layout.grouping, 3);
      return out;
    }
    default:
      return std::nullopt;
  }
}

TracedText format_number(Runtime& rt, const Value& value, const FieldLayout& layout) {
  bool negative = false;
  std::optional<std::string> digits = number_text(value, layout, negative);
  if (!digits) {
    rt.fail(fmt::format("format code '{}' does not fit a value of type '{}'", layout.type, type_name(value)));
    return {};
  }
  const std::string sign = negative ? "-" : layout.sign == '+' ? "+" : layout.sign == ' ' ? " " : "";
  TracedText out(sign + *digits, value.from_request());
  return padded(out, layout, layout.align != 0 ? layout.align : '>', sign.size());
}

TracedText format_value(Runtime& rt, const Value& value, const FieldLayout& layout) {
  const bool textual = layout.type == 0 || layout.type == 's';
  if (value.is_number() && !(value.is(Kind::boolean) && textual)) {
    if (layout.type != 's') return format_number(rt, value, layout);
  } else if (textual) {
    TracedText text = to_text(rt, value);
    if (layout.precision >= 0) {
      text = text.slice(0, pystr::offset(text.bytes(), static_cast<std::size_t>(layout.precision)));
    }
    return padded(text, layout, layout.align != 0 && layout.align != '=' ? layout.align : '<');
  }
  rt.fail(fmt::format("format code '{}' does not fit a value of type '{}'", layout.type, type_name(value)));
  return {};
}

std::optional<long> digits_at(std::string_view text, std::size_t& at) {
  std::optional<long> value;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min(value.value_or(0) * 10 + (text[at++] - '0'), max_field_width + 1);
  }
  return value;
}

bool charge_field(Runtime& rt, long n) {
  if (n <= max_field_width) return rt.charge_bytes(static_cast<std::uint64_t>(std::max(n, 0L)));
  rt.fail_limit(fmt::format("a format width or precision over {}", max_field_width));
  return false;
}

}  // namespace heddle::text::jinja
