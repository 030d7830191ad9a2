// Filters over text, numbers and any single value.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/jinja_string_methods.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

// The input as a string that stays markup if it is, which most text filters start from.
Value soft_text(Runtime& rt, const Value& input) { return input.is_string() ? input : rt.text(to_text(rt, input)); }

// A filter that is the method of the same name.
template <const char* name>
Value method_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Value text = soft_text(rt, input);
  return rt.ok() ? call_string_method(rt, name, text, arguments) : Value();
}
constexpr char upper_name[] = "upper", lower_name[] = "lower", capitalize_name[] = "capitalize", strip_name[] = "strip";

Value center(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "center", arguments, {"width"});
  const Value width = Value::integer(bound.integer(0, 80));
  const Value text = soft_text(rt, input);
  return rt.ok() ? call_string_method(rt, "center", text, {{width}, {}}) : Value();
}

Value title(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "title", arguments, {});
  const Value text = soft_text(rt, input);
  if (!rt.ok() || !rt.step(text.bytes().size() / 8)) return {};
  const TracedText& whole = text.text();
  const std::string_view bytes = text.bytes();
  TracedText out;
  std::size_t begin = 0;  // of the word; its first letter is upper case, the rest lower
  const auto word = [&](std::size_t end) {
    if (begin >= end) return;
    const std::size_t first = begin + pystr::offset(bytes.substr(begin, 4), 1);
    out.append(pystr::change_case(whole.slice(begin, first), pystr::Case::upper));
    out.append(pystr::change_case(whole.slice(first, end), pystr::Case::lower));
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t here = at;
    const char32_t c = pystr::decode(bytes, at);
    if (!pystr::is_space(c) && (c >= 0x80 || std::string_view("-({[<").find(bytes[here]) == std::string_view::npos))
      continue;
    word(here);
    out.append(whole, here, at);
    begin = at;
  }
  word(bytes.size());
  return rt.text(std::move(out));
}

Value replace(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "replace", arguments, {"old", "new", "count"}, 2);
  if (!rt.ok()) return {};
  const Value plain = rt.text(to_text(rt, input));
  Arguments call{{rt.text(to_text(rt, bound[0])), rt.text(to_text(rt, bound[1]))}, {}};
  if (bound.given(2)) call.positional.push_back(bound[2]);
  return rt.ok() ? call_string_method(rt, "replace", plain, call) : Value();
}

Value indent(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "indent", arguments, {"width", "first", "blank"});
  TracedText margin;
  if (bound.has(0) && bound[0].is_string()) {
    margin = bound[0].text();
  } else {
    const long width = std::max(0L, bound.integer(0, 4));
    if (!rt.ok() || !rt.charge_bytes(static_cast<std::uint64_t>(width))) return {};
    margin = TracedText(std::string(static_cast<std::size_t>(width), ' '), false);
  }
  if (input.is_undefined()) return rt.fail_undefined(input);
  if (!input.is_string()) return rt.fail(fmt::format("indent: expected a string, not {}", type_name(input)));
  const bool blank = bound.flag(2, false);
  TracedText closed = input.text();
  closed.append("\n", false);  // splitting drops one newline at the end; this keeps the input's
  const std::vector<TracedText> lines = pystr::split_lines(closed, false);
  if (!rt.ok() || !rt.step(lines.size()) || !rt.charge_bytes(input.bytes().size() + lines.size() * margin.size()))
    return {};
  TracedText out;
  if (bound.flag(1, false)) out.append(margin);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", false);
    if (i > 0 && (blank || !lines[i].empty())) out.append(margin);
    out.append(lines[i]);
  }
  return rt.text(std::move(out), input.string().markup);
}

Value truncate(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const long length = bound.integer(0, 255);
  const TracedText end = bound.text(2, "...");
  const long leeway = bound.given(3) ? bound.integer(3, 5) : 5;
  if (!rt.ok()) return {};
  const std::optional<std::size_t> size = jinja::length(input);
  if (!size) return rt.fail(fmt::format("truncate: expected a string, not {}", type_name(input)));
  const auto end_length = static_cast<long>(pystr::length(end.bytes()));
  if (length < end_length || leeway < 0) return rt.fail("truncate: the length is shorter than the end mark");
  if (static_cast<long>(*size) <= length + leeway) return input;
  if (!input.is_string()) return rt.fail(fmt::format("truncate: expected a string, not {}", type_name(input)));
  const std::string_view bytes = input.bytes();
  std::size_t cut = pystr::offset(bytes, static_cast<std::size_t>(length - end_length));
  if (!bound.flag(1, false)) {
    const std::size_t space = bytes.substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TracedText out = input.text().slice(0, cut);
  out.append(end);
  return rt.text(std::move(out), input.string().markup);
}

Value word_count(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "wordcount", arguments, {});
  const TracedText text = to_text(rt, input);
  if (!rt.ok() || !rt.step(text.size() / 8)) return {};
  Integer words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = pystr::decode(text.bytes(), at);
    const bool word =
        c == '_' || pystr::is_class(std::string_view(text.bytes()).substr(begin, at - begin), pystr::Class::alnum);
    words += word && !inside;
    inside = word;
  }
  return Value::integer(words);
}

Value escape(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "escape", arguments, {});
  return rt.ok() ? rt.text(escaped_text(rt, input), true) : Value();
}

Value force_escape(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "forceescape", arguments, {});
  return rt.ok() ? rt.text(escape_html(rt, to_text(rt, input)), true) : Value();
}

Value safe(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "safe", arguments, {});
  return rt.ok() ? rt.text(to_text(rt, input), true) : Value();
}

Value string(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "string", arguments, {});
  return soft_text(rt, input);
}

Value format(Runtime& rt, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return rt.fail("format: positional and keyword arguments can't be mixed");
  }
  const Value text = soft_text(rt, input);
  Value values;
  if (arguments.named.empty()) {
    values = rt.tuple(arguments.positional);
  } else {
    Dict dict;
    for (const auto& [name, value] : arguments.named) dict.set(Value::literal(name), value);
    values = rt.dict(std::move(dict));
  }
  return rt.ok() ? percent_format(rt, text, values) : Value();
}

std::string quoted(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

Value url_encode(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "urlencode", arguments, {});
  if (!rt.ok()) return {};
  const auto put = [&](TracedText& out, const Value& value, bool query) {
    const TracedText text = to_text(rt, value);
    if (rt.charge_bytes(3 * text.size())) out.append_derived(quoted(text.bytes(), query), text, 0, text.size());
  };
  TracedText out;
  if (input.is_string() || !iterable(input)) {
    put(out, input, false);
    return rt.text(std::move(out));
  }
  std::vector<Value> pairs;
  if (input.is(Kind::dict)) {
    for (const auto& [key, value] : input.dict().entries) pairs.push_back(rt.tuple({key, value}));
  } else {
    pairs = iterate(rt, input);
  }
  for (const Value& pair : pairs) {
    const std::vector<Value> parts = iterate(rt, pair);
    if (!rt.ok()) return {};
    if (parts.size() != 2) return rt.fail("urlencode: expected pairs");
    if (!out.empty()) out.append("&", false);
    put(out, parts[0], true);
    out.append("=", false);
    put(out, parts[1], true);
  }
  return rt.text(std::move(out));
}

Value file_size(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "filesizeformat", arguments, {"binary"});
  const std::optional<double> parsed = input.is_number()   ? std::optional(input.real())
                                       : input.is_string() ? parse_float(input.bytes())
                                                           : std::nullopt;
  if (!parsed || !std::isfinite(*parsed)) return rt.fail("filesizeformat: expected a number");
  const bool binary = bound.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*parsed == 1) return Value::literal("1 Byte");
  if (*parsed < base)
    return rt.text(TracedText(fmt::format("{:.0f} Bytes", std::trunc(*parsed)), input.from_request()));
  constexpr std::string_view prefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < prefixes.size() && *parsed >= unit * base) unit *= base, ++i;
  const char prefix = binary && i == 0 ? 'K' : prefixes[i];
  return rt.text(
      TracedText(fmt::format("{:.1f} {}{}", *parsed / unit, prefix, binary ? "iB" : "B"), input.from_request()));
}

Value otherwise(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "default", arguments, {"default_value", "boolean"});
  if (!rt.ok()) return {};
  const bool absent = input.is_undefined() || (bound.flag(1, false) && !input.truthy());
  return !absent ? input : bound.has(0) ? bound[0] : Value::literal("");
}

Value to_integer(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "int", arguments, {"default", "base"});
  const long base = bound.integer(1, 10);
  if (!rt.ok()) return {};
  if (input.is_undefined()) return rt.fail_undefined(input);
  std::optional<Integer> value;
  if (input.is_string()) {
    if (base == 0 || (base >= 2 && base <= 36)) value = parse_integer(input.bytes(), static_cast<int>(base));
    if (!value) {
      const std::optional<double> real = parse_float(input.bytes());
      if (real) value = integer_of(*real);
    }
  } else if (input.is_integral()) {
    value = input.integer();
  } else if (input.is(Kind::real)) {
    value = integer_of(input.real());
    if (!value && !std::isnan(input.real())) return rt.fail("int: the number is too large");
  }
  if (value) return Value::integer(*value, input.from_request());
  return bound.has(0) ? bound[0] : Value::integer(0);
}

Value to_real(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "float", arguments, {"default"});
  if (!rt.ok()) return {};
  if (input.is_undefined()) return rt.fail_undefined(input);
  std::optional<double> value;
  if (input.is_string()) value = parse_float(input.bytes());
  if (input.is_number()) value = input.real();
  if (value) return Value::real(*value, input.from_request());
  return bound.has(0) ? bound[0] : Value::real(0.0);
}

Value absolute(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "abs", arguments, {});
  if (!rt.ok()) return {};
  if (input.is_integral()) return input.integer() < 0 ? negate(rt, input) : positive(rt, input);
  if (input.is(Kind::real)) return Value::real(std::fabs(input.real()), input.from_request());
  if (input.is_undefined()) return rt.fail_undefined(input);
  return rt.fail(fmt::format("abs: expected a number, not {}", type_name(input)));
}

Value round(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "round", arguments, {"precision", "method"});
  const auto digits = static_cast<int>(std::clamp(bound.integer(0, 0), -400L, 400L));
  const TracedText method = bound.text(1, "common");
  if (!rt.ok()) return {};
  if (input.is_undefined()) return rt.fail_undefined(input);
  if (!input.is_number()) return rt.fail(fmt::format("round: expected a number, not {}", type_name(input)));
  if (method.bytes() == "common") {
    if (input.is_integral() && digits >= 0) return positive(rt, input);
    const double rounded = round_to(input.real(), digits);
    if (input.is_integral()) return Value::integer(integer_of(rounded).value_or(0), input.from_request());
    return Value::real(rounded, input.from_request());
  }
  if (method.bytes() != "ceil" && method.bytes() != "floor")
    return rt.fail("round: method must be common, ceil or floor");
  const double scale = std::pow(10.0, digits);
  const double scaled = input.real() * scale;
  if (!std::isfinite(scaled)) return rt.fail("round: the number is too large");
  return Value::real((method.bytes() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale, input.from_request());
}

Value attr(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "attr", arguments, {"name"}, 1);
  const TracedText name = bound.text(0, "");
  return rt.ok() ? attribute_only(rt, input, name.bytes()) : Value();
}

Value to_json(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = bound.flag(0, false);
  if (bound.given(1)) {
    if (bound[1].is_string()) {
      style.indent = bound[1].bytes();
    } else {
      const long width = std::max(0L, bound.integer(1, 0));
      if (!rt.ok() || !rt.charge_bytes(static_cast<std::uint64_t>(width))) return {};
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
  }
  if (bound.given(2)) {
    const std::vector<Value> parts = iterate(rt, bound[2]);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      return rt.fail("tojson: separators must be two strings");
    }
    style.item_separator = parts[0].bytes();
    style.key_separator = parts[1].bytes();
  }
  style.sort_keys = bound.flag(3, false);
  return rt.ok() ? rt.text(jinja::to_json(rt, input, style)) : Value();
}

Value count(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "length", arguments, {});
  if (!rt.ok()) return {};
  if (const std::optional<std::size_t> n = length(input)) return Value::integer(static_cast<Integer>(*n));
  return rt.fail(fmt::format("object of type '{}' has no length", type_name(input)));
}

constexpr std::pair<std::string_view, Filter> filters[] = {
    {"abs", absolute},
    {"attr", attr},
    {"capitalize", method_filter<capitalize_name>},
    {"center", center},
    {"count", count},
    {"d", otherwise},
    {"default", otherwise},
    {"e", escape},
    {"escape", escape},
    {"filesizeformat", file_size},
    {"float", to_real},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"length", count},
    {"lower", method_filter<lower_name>},
    {"replace", replace},
    {"round", round},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", to_json},
    {"trim", method_filter<strip_name>},
    {"truncate", truncate},
    {"upper", method_filter<upper_name>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

Filter text_filter(std::string_view name) {
  for (const auto& [known, filter] : filters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace heddle::text::jinja
