#include "text/python_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20); };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Python allows one underscore between two digits; removes them, or nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto alnum = [&](std::size_t at) { return at < text.size() && digit_of(text[at]) < 36; };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  return out;
}

}  // namespace

std::string integer_text(Integer value) { return fmt::format("{}", value); }

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const std::string_view power = text.substr(e + 1);
  std::from_chars(power.data() + (power.front() == '+' ? 1 : 0), power.data() + power.size(), exponent);
  const std::size_t n = digits.size();
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += '.' + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto places = static_cast<std::size_t>(std::abs(exponent));
  if (exponent < 0) return out + "0." + std::string(places - 1, '0') + digits;
  if (n <= places + 1) return out + digits + std::string(places + 1 - n, '0') + ".0";
  return out + digits.substr(0, places + 1) + '.' + digits.substr(places + 1);
}

std::string fixed_text(double value, int precision, char conversion) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  switch (conversion) {
    case 'e':
      return fmt::format("{:.{}e}", value, precision);
    case 'g':
      return fmt::format("{:.{}g}", value, precision);
    default:
      return fmt::format("{:.{}f}", value, precision);
  }
}

std::optional<Integer> parse_integer(std::string_view text, int base) {
  text = trim(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = digit_of(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
      return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = trim(text);
  const std::optional<std::string> plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view number = *plain;
  bool negative = false;
  if (number[0] == '+' || number[0] == '-') {
    negative = number[0] == '-';
    number.remove_prefix(1);
  }
  std::string lower(number);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = std::nan("");
  } else {
    // from_chars would take "nan(x)" and hexadecimal forms of its own.
    if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
    const auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (end != lower.data() + lower.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) value = lower.find("e-") == std::string::npos ? HUGE_VAL : 0.0;
    if (error == std::errc::invalid_argument) return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<Integer> integer_of(double value) {
  if (!(std::fabs(value) < 0x1p126)) return std::nullopt;
  return static_cast<Integer>(value);
}

double round_to(double value, int digits) {
  if (!std::isfinite(value) || digits > 22) return value;
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    return std::isinf(scale) ? 0.0 * value : std::nearbyint(value / scale) * scale;
  }
  // Printing rounds on the exact binary value, halves to even: what Python does.
  const std::string text = fmt::format("{:.{}f}", value, digits);
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

}  // namespace heddle::text::jinja
