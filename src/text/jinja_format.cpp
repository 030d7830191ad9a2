#include "text/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "text/jinja_access.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

constexpr long max_width = 100'000;  // of one field

// One field's layout, shared by both kinds of formatting.
struct Spec {
  std::string fill = " ";
  char align = 0;  // <, >, ^, = or none given
  char sign = '-';
  bool alternate = false;
  char grouping = 0;  // , or _
  long width = 0;
  long precision = -1;
  char type = 0;
};

TracedText padded(const TracedText& text, const Spec& spec, char align, std::size_t sign_size = 0) {
  const auto length = static_cast<long>(pystr::length(text.bytes()));
  if (length >= spec.width) return text;
  const auto missing = static_cast<std::size_t>(spec.width - length);
  std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  TracedText out;
  const auto fill = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out.append(spec.fill, false);
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

// Sign, digits and suffix of a number, by type. Nothing when the type does not fit.
std::optional<std::string> number_text(const Value& value, const Spec& spec, bool& negative) {
  char type = spec.type;
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
      if (spec.grouping != 0) group(out, spec.grouping, base == 10 ? 3 : 4);
      if (spec.alternate && base != 10) out.insert(0, std::string("0") + type);
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
      const int precision = static_cast<int>(std::min(spec.precision < 0 ? 6L : spec.precision, 400L));
      if (type == 'r') {
        out = spec.precision < 0 ? float_text(number) : fixed_text(number, std::max(precision, 1), 'g');
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
      if (spec.grouping != 0) group(out, spec.grouping, 3);
      return out;
    }
    default:
      return std::nullopt;
  }
}

TracedText format_number(Runtime& rt, const Value& value, const Spec& spec) {
  bool negative = false;
  std::optional<std::string> digits = number_text(value, spec, negative);
  if (!digits) {
    rt.fail(fmt::format("format code '{}' does not fit a value of type '{}'", spec.type, type_name(value)));
    return {};
  }
  const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  TracedText out(sign + *digits, value.from_request());
  return padded(out, spec, spec.align != 0 ? spec.align : '>', sign.size());
}

TracedText format_value(Runtime& rt, const Value& value, const Spec& spec) {
  const bool textual = spec.type == 0 || spec.type == 's';
  if (value.is_number() && !(value.is(Kind::boolean) && textual)) {
    if (spec.type != 's') return format_number(rt, value, spec);
  } else if (textual) {
    TracedText text = to_text(rt, value);
    if (spec.precision >= 0) {
      text = text.slice(0, pystr::offset(text.bytes(), static_cast<std::size_t>(spec.precision)));
    }
    return padded(text, spec, spec.align != 0 && spec.align != '=' ? spec.align : '<');
  }
  rt.fail(fmt::format("format code '{}' does not fit a value of type '{}'", spec.type, type_name(value)));
  return {};
}

// Digits at `at`; moves behind them. Nothing when there are none.
std::optional<long> digits_at(std::string_view text, std::size_t& at) {
  std::optional<long> value;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min(value.value_or(0) * 10 + (text[at++] - '0'), max_width + 1);
  }
  return value;
}

bool fits(Runtime& rt, long n) {
  if (n <= max_width) return rt.charge_bytes(static_cast<std::uint64_t>(std::max(n, 0L)));
  rt.fail_limit(fmt::format("a format width or precision over {}", max_width));
  return false;
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Value& format, const Value& values)
      : rt_(rt), text_(format.text()), bytes_(format.bytes()), values_(values), markup_(format.string().markup) {}

  TracedText run() {
    for (std::size_t at = 0; at < bytes_.size() && rt_.step();) {
      const std::size_t percent = std::min(bytes_.find('%', at), bytes_.size());
      out_.append(text_, at, percent);
      if (percent == bytes_.size()) break;
      at = percent + 1;
      field(at);
    }
    const bool tuple = values_.is(Kind::list) && values_.list().flavour == List::Flavour::tuple;
    const bool all = values_.is(Kind::dict) || next_ >= (tuple ? values_.list().items.size() : 1);
    if (rt_.ok() && !all) rt_.fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Value next_value() {
    const bool tuple = values_.is(Kind::list) && values_.list().flavour == List::Flavour::tuple;
    const std::size_t n = tuple ? values_.list().items.size() : 1;
    if (next_ >= n) return rt_.fail("not enough arguments for format string");
    return tuple ? values_.list().items[next_++] : (++next_, values_);
  }

  void field(std::size_t& at) {
    Spec spec;
    std::optional<Value> named;
    if (at < bytes_.size() && bytes_[at] == '(') {
      const std::size_t close = bytes_.find(')', at);
      if (close == std::string_view::npos) return fail("incomplete format key");
      if (!values_.is(Kind::dict)) return fail("format requires a mapping");
      const Value* found = values_.dict().find(bytes_.substr(at + 1, close - at - 1));
      if (found == nullptr) return fail(fmt::format("no value for '{}'", bytes_.substr(at + 1, close - at - 1)));
      named = *found;
      at = close + 1;
    }
    bool left = false, zero = false;
    for (; at < bytes_.size() && std::string_view("-+ #0").find(bytes_[at]) != std::string_view::npos; ++at) {
      left = left || bytes_[at] == '-';
      zero = zero || bytes_[at] == '0';
      spec.alternate = spec.alternate || bytes_[at] == '#';
      if (bytes_[at] == '+' || (bytes_[at] == ' ' && spec.sign != '+')) spec.sign = bytes_[at];
    }
    spec.width = number(at).value_or(0);
    if (spec.width < 0) left = true;
    spec.width = std::abs(spec.width);
    if (at < bytes_.size() && bytes_[at] == '.') {
      ++at;
      spec.precision = std::max(0L, number(at).value_or(0));
    }
    if (!rt_.ok() || !fits(rt_, spec.width) || !fits(rt_, spec.precision)) return;
    if (at >= bytes_.size()) return fail("incomplete format");
    spec.type = bytes_[at++];
    if (spec.type == '%') return out_.append("%", false);
    const Value value = named ? *named : next_value();
    if (rt_.ok()) convert(value, spec, left, zero);
  }

  std::optional<long> number(std::size_t& at) {
    if (at >= bytes_.size() || bytes_[at] != '*') return digits_at(bytes_, at);
    ++at;
    const Value value = next_value();
    if (!value.is_integral()) return rt_.fail("* wants int"), std::nullopt;
    constexpr Integer most = max_width + 1;
    return static_cast<long>(std::clamp(value.integer(), -most, most));
  }

  void convert(const Value& value, Spec spec, bool left, bool zero) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        TracedText text =
            spec.type == 's' ? (markup_ ? escaped_text(rt_, value) : to_text(rt_, value)) : repr(rt_, value);
        if (spec.precision >= 0) {
          text = text.slice(0, pystr::offset(text.bytes(), static_cast<std::size_t>(spec.precision)));
        }
        return out_.append(padded(text, spec, left ? '<' : '>'));
      }
      case 'c': {
        std::string one;
        if (value.is_string() && value.string().length == 1)
          return out_.append(padded(value.text(), spec, left ? '<' : '>'));
        if (!value.is_integral() || value.integer() < 0 || value.integer() > 0x10FFFF ||
            (value.integer() >= 0xD800 && value.integer() < 0xE000)) {
          return fail("%c requires int or char");
        }
        pystr::encode(static_cast<char32_t>(value.integer()), one);
        return out_.append(padded(TracedText(one, value.from_request()), spec, left ? '<' : '>'));
      }
      case 'd':
      case 'i':
      case 'u': {
        if (!value.is_number()) break;
        spec.type = 'd';
        const std::optional<Integer> whole = value.is_integral() ? value.integer() : integer_of(value.real());
        if (!whole) return fail("cannot convert float to integer");
        return out_.append(integer(Value::integer(*whole, value.from_request()), spec, left, zero));
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) break;
        return out_.append(integer(value, spec, left, zero));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) break;
        spec.align = left ? '<' : zero ? '=' : '>';
        if (zero && !left) spec.fill = "0";
        return out_.append(format_number(rt_, value, spec));
      default:
        return fail(fmt::format("unsupported format character '{}'", spec.type));
    }
    if (value.is_undefined()) {
      rt_.fail_undefined(value);
    } else {
      fail(fmt::format("%{} format: a number is required, not {}", spec.type, type_name(value)));
    }
  }

  // The precision of an integer is its least number of digits.
  TracedText integer(const Value& value, Spec spec, bool left, bool zero) {
    spec.align = left ? '<' : zero ? '=' : '>';
    if (zero && !left) spec.fill = "0";
    if (spec.precision < 0) return format_number(rt_, value, spec);
    bool negative = false;
    std::string digits = number_text(value, spec, negative).value_or("");
    if (static_cast<long>(digits.size()) < spec.precision) {
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    }
    const std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
    return padded(TracedText(sign + digits, value.from_request()), spec, spec.align, sign.size());
  }

  void fail(std::string message) { rt_.fail("% formatting: " + std::move(message)); }

  Runtime& rt_;
  const TracedText& text_;
  std::string_view bytes_;
  const Value& values_;
  bool markup_;
  std::size_t next_ = 0;
  TracedText out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Value& format, const std::vector<Value>& positional,
                 const std::vector<std::pair<std::string, Value>>& named)
      : rt_(rt),
        text_(format.text()),
        bytes_(format.bytes()),
        positional_(positional),
        named_(named),
        markup_(format.string().markup) {}

  TracedText run() {
    std::size_t at = 0;
    while (at < bytes_.size() && rt_.step()) {
      const std::size_t brace = std::min(bytes_.find_first_of("{}", at), bytes_.size());
      out_.append(text_, at, brace);
      if (brace == bytes_.size()) break;
      at = brace + 1;
      if (at < bytes_.size() && bytes_[at] == bytes_[brace]) {
        out_.append(text_, brace, at);
        ++at;
        continue;
      }
      if (bytes_[brace] == '}') {
        rt_.fail("format(): single '}' encountered in format string");
        break;
      }
      const std::size_t close = end_of_field(at);
      if (close == std::string_view::npos) {
        rt_.fail("format(): expected '}' before end of string");
        break;
      }
      out_.append(field(std::string(bytes_.substr(at, close - at))));
      at = close + 1;
    }
    return std::move(out_);
  }

 private:
  std::size_t end_of_field(std::size_t at) const {
    int depth = 0;
    for (; at < bytes_.size(); ++at) {
      if (bytes_[at] == '{') ++depth;
      if (bytes_[at] == '}' && depth-- == 0) return at;
    }
    return std::string_view::npos;
  }

  TracedText field(std::string_view body) {
    // The first ':' or '!' outside brackets ends the name.
    std::size_t end = 0;
    for (bool bracket = false; end < body.size() && (bracket || (body[end] != ':' && body[end] != '!')); ++end) {
      if (body[end] == '[') bracket = true;
      if (body[end] == ']') bracket = false;
    }
    Value value = resolve(body.substr(0, end));
    if (!rt_.ok()) return {};
    body.remove_prefix(end);
    char conversion = 0;
    if (!body.empty() && body[0] == '!') {
      if (body.size() < 2 || (body.size() > 2 && body[2] != ':')) return fail("bad conversion");
      conversion = body[1];
      body.remove_prefix(2);
    }
    if (conversion == 'r' || conversion == 'a') {
      value = rt_.text(repr(rt_, value));
    } else if (conversion == 's') {
      value = rt_.text(to_text(rt_, value));
    } else if (conversion != 0) {
      return fail(fmt::format("unknown conversion '{}'", conversion));
    }
    if (!body.empty()) body.remove_prefix(1);
    std::string spec_text(body);
    if (body.find('{') != std::string_view::npos && !nested(body, spec_text)) return {};
    Spec spec;
    if (!parse_spec(spec_text, spec)) return {};
    if (markup_ && (spec.type == 0 || spec.type == 's') && !value.is_number()) {
      return padded(escaped_text(rt_, value), spec, spec.align != 0 ? spec.align : '<');
    }
    return format_value(rt_, value, spec);
  }

  // {:{width}}: fields inside the layout, one level deep.
  bool nested(std::string_view body, std::string& out) {
    out.clear();
    for (std::size_t at = 0; at < body.size(); ++at) {
      if (body[at] != '{') {
        out.push_back(body[at]);
        continue;
      }
      const std::size_t close = body.find('}', at);
      if (close == std::string_view::npos) return fail("unbalanced braces"), false;
      out += to_text(rt_, resolve(body.substr(at + 1, close - at - 1))).bytes();
      at = close;
    }
    return rt_.ok();
  }

  Value resolve(std::string_view name) {
    std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    while (rt_.ok() && end < name.size() && rt_.step()) {
      const bool dot = name[end] == '.';
      const std::size_t stop = dot ? std::min(name.find_first_of(".[", end + 1), name.size()) : name.find(']', end);
      if (stop == std::string_view::npos) return rt_.fail("format(): missing ']' in format string");
      const std::string_view part = name.substr(end + 1, stop - end - 1);
      if (dot) {
        value = attribute(rt_, value, part);
      } else {
        std::size_t at = 0;
        const std::optional<long> index = digits_at(part, at);
        value = item(rt_, value, index && at == part.size() ? Value::integer(*index) : Value::literal(part));
      }
      end = dot ? stop : stop + 1;
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t at = 0;
    std::optional<long> index = name.empty() ? std::optional(static_cast<long>(next_++)) : digits_at(name, at);
    if (index && (name.empty() || at == name.size())) {
      if (*index < static_cast<long>(positional_.size())) return positional_[static_cast<std::size_t>(*index)];
      return rt_.fail(fmt::format("format(): no positional argument {}", *index));
    }
    for (const auto& [key, value] : named_) {
      if (key == name) return value;
    }
    return rt_.fail(fmt::format("format(): no argument '{}'", name));
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  bool parse_spec(std::string_view text, Spec& spec) {
    const std::size_t first = pystr::offset(text, 1);
    const auto aligns = [&](std::size_t at) {
      return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
    };
    std::size_t at = 0;
    if (first > 0 && aligns(first)) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (aligns(0)) {
      spec.align = text[at++];
    }
    if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos) spec.sign = text[at++];
    if (at < text.size() && text[at] == '#') spec.alternate = true, ++at;
    if (at < text.size() && text[at] == '0') {
      if (spec.align == 0) spec.align = '=', spec.fill = "0";
      ++at;
    }
    spec.width = digits_at(text, at).value_or(0);
    if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
    if (at < text.size() && text[at] == '.') {
      ++at;
      const std::optional<long> precision = digits_at(text, at);
      if (!precision) return fail("format specifier missing precision"), false;
      spec.precision = *precision;
    }
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size()) return fail(fmt::format("invalid format specifier '{}'", text)), false;
    return fits(rt_, spec.width) && fits(rt_, spec.precision);
  }

  TracedText fail(std::string message) {
    rt_.fail("format(): " + std::move(message));
    return {};
  }

  Runtime& rt_;
  const TracedText& text_;
  std::string_view bytes_;
  const std::vector<Value>& positional_;
  const std::vector<std::pair<std::string, Value>>& named_;
  bool markup_;
  std::size_t next_ = 0;
  TracedText out_;
};

}  // namespace

Value percent_format(Runtime& rt, const Value& format, const Value& values) {
  TracedText text = PercentFormatter(rt, format, values).run();
  return rt.text(std::move(text), format.string().markup);
}

Value brace_format(Runtime& rt, const Value& format, const std::vector<Value>& positional,
                   const std::vector<std::pair<std::string, Value>>& named) {
  TracedText text = BraceFormatter(rt, format, positional, named).run();
  return rt.text(std::move(text), format.string().markup);
}

}  // namespace heddle::text::jinja
