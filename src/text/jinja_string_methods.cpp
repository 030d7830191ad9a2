#include "text/jinja_string_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja_access.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

using Method = Value (*)(Runtime&, std::string_view, const Value&, const Arguments&);

Value same_kind(Runtime& rt, const Value& self, TracedText text) {
  return rt.text(std::move(text), self.string().markup);
}

Value list_of(Runtime& rt, const Value& self, std::vector<TracedText> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (TracedText& part : parts) {
    items.push_back(same_kind(rt, self, std::move(part)));
    if (!rt.ok()) return {};
  }
  return rt.list(std::move(items), self.from_request());
}

Value change_case(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound none(rt, name, arguments, {});
  if (!rt.ok() || !rt.step(self.bytes().size() / 8)) return {};
  using pystr::Case;
  const Case how = name == "upper"        ? Case::upper
                   : name == "lower"      ? Case::lower
                   : name == "capitalize" ? Case::capitalize
                   : name == "title"      ? Case::title
                                          : Case::swap;
  return same_kind(rt, self, pystr::change_case(self.text(), how));
}

Value strip(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"chars"});
  std::optional<TracedText> characters;
  if (bound.given(0)) characters = bound.text(0, "");
  if (!rt.ok()) return {};
  const auto side = name == "strip" ? pystr::Side::both : name == "lstrip" ? pystr::Side::left : pystr::Side::right;
  if (!characters) return same_kind(rt, self, pystr::strip(self.text(), side));
  // Each stripped character is looked up among the given ones.
  if (!rt.step(1 + self.bytes().size() * (1 + characters->size() / 64) / 64)) return {};
  return same_kind(rt, self, pystr::strip(self.text(), side, characters->bytes()));
}

Value split(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"sep", "maxsplit"});
  std::optional<TracedText> separator;
  if (bound.given(0)) separator = bound.text(0, "");
  const long max = bound.integer(1, -1);
  if (!rt.ok() || !rt.step(1 + self.bytes().size() / 8)) return {};
  if (separator && separator->empty()) return rt.fail(fmt::format("{}(): empty separator", name));
  std::optional<std::string_view> bytes;
  if (separator) bytes = separator->bytes();
  const auto parts = name == "split" ? pystr::split(self.text(), bytes, max) : pystr::rsplit(self.text(), bytes, max);
  return list_of(rt, self, parts);
}

Value split_lines(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"keepends"});
  if (!rt.ok() || !rt.step(1 + self.bytes().size() / 8)) return {};
  return list_of(rt, self, pystr::split_lines(self.text(), bound.flag(0, false)));
}

Value partition(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"sep"}, 1);
  const TracedText separator = bound.text(0, "");
  if (!rt.ok() || !rt.charge_search(self.bytes().size())) return {};
  if (separator.empty()) return rt.fail(fmt::format("{}(): empty separator", name));
  const bool from_right = name == "rpartition";
  const std::size_t at = from_right ? self.bytes().rfind(separator.bytes()) : self.bytes().find(separator.bytes());
  const TracedText& text = self.text();
  if (at == std::string_view::npos) {
    const Value empty = same_kind(rt, self, {});
    return from_right ? rt.tuple({empty, empty, self}) : rt.tuple({self, empty, empty});
  }
  const std::size_t end = at + separator.size();
  return rt.tuple({same_kind(rt, self, text.slice(0, at)), same_kind(rt, self, text.slice(at, end)),
                   same_kind(rt, self, text.slice(end, text.size()))});
}

// Where to look, in bytes, for methods that take start and end; nothing if Python would find nothing at all.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
};
std::optional<Window> window(Runtime& rt, const Value& self, const Bound& bound) {
  const auto length = static_cast<long>(self.string().length);
  long start = bound.given(1) ? bound.integer(1, 0) : 0;
  long end = bound.given(2) ? bound.integer(2, length) : length;
  if (!rt.ok() || !rt.charge_search(self.bytes().size())) return std::nullopt;
  if (start < 0) start = std::max(0L, start + length);
  if (end < 0) end = std::max(0L, end + length);
  end = std::min(end, length);
  if (start > end) return std::nullopt;
  const std::size_t begin = pystr::offset(self.bytes(), static_cast<std::size_t>(start));
  return Window{begin, begin + pystr::offset(self.bytes().substr(begin), static_cast<std::size_t>(end - start))};
}

Value find(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"sub", "start", "end"}, 1);
  const TracedText part = bound.text(0, "");
  const std::optional<Window> where = window(rt, self, bound);
  if (!rt.ok()) return {};
  std::size_t at = std::string_view::npos;
  if (where) {
    const std::string_view inside = self.bytes().substr(where->begin, where->end - where->begin);
    at = name.front() == 'r' ? inside.rfind(part.bytes()) : inside.find(part.bytes());
  }
  if (at != std::string_view::npos) {
    return Value::integer(static_cast<Integer>(pystr::length(self.bytes().substr(0, where->begin + at))));
  }
  if (name == "find" || name == "rfind") return Value::integer(-1);
  return rt.fail(fmt::format("{}(): substring not found", name));
}

Value count(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"sub", "start", "end"}, 1);
  const TracedText part = bound.text(0, "");
  const std::optional<Window> where = window(rt, self, bound);
  if (!rt.ok()) return {};
  if (!where) return Value::integer(0);
  const std::string_view inside = self.bytes().substr(where->begin, where->end - where->begin);
  return Value::integer(static_cast<Integer>(pystr::count(inside, part.bytes())));
}

Value starts_or_ends(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"prefix", "start", "end"}, 1);
  if (!rt.ok()) return {};
  std::vector<Value> candidates = {bound[0]};
  if (bound[0].is(Kind::list) && bound[0].list().flavour == List::Flavour::tuple) candidates = bound[0].list().items;
  const std::optional<Window> where = window(rt, self, bound);
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      return rt.fail(fmt::format("{}() first arg must be str or a tuple of str, not {}", name, type_name(candidate)));
    }
    if (!rt.charge_search(candidate.bytes().size())) return {};
    if (!where) continue;
    const std::string_view inside = self.bytes().substr(where->begin, where->end - where->begin);
    if (name == "startswith" ? inside.starts_with(candidate.bytes()) : inside.ends_with(candidate.bytes())) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

Value replace(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"old", "new", "count"}, 2);
  const TracedText from = bound.text(0, "");
  TracedText to = bound.text(1, "");
  const long max = bound.integer(2, -1);
  if (!rt.ok() || !rt.charge_search(self.bytes().size())) return {};
  if (self.string().markup) to = escaped_text(rt, bound[1]);
  std::size_t times = pystr::count(self.bytes(), from.bytes());
  if (max >= 0) times = std::min(times, static_cast<std::size_t>(max));
  if (!rt.step(times) || !rt.charge_bytes(self.bytes().size() + times * to.size())) return {};
  return same_kind(rt, self, pystr::replace(self.text(), from.bytes(), to, max));
}

Value remove_affix(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"affix"}, 1);
  const TracedText affix = bound.text(0, "");
  if (!rt.ok()) return {};
  const std::size_t size = self.bytes().size();
  if (name == "removeprefix" && self.bytes().starts_with(affix.bytes())) {
    return same_kind(rt, self, self.text().slice(affix.size(), size));
  }
  if (name == "removesuffix" && self.bytes().ends_with(affix.bytes())) {
    return same_kind(rt, self, self.text().slice(0, size - affix.size()));
  }
  return self;
}

Value join(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"iterable"}, 1);
  if (!rt.ok()) return {};
  return join_strings(rt, self, iterate(rt, bound[0]));
}

Value pad(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"width", "fillchar"}, 1);
  const long width = bound.integer(0, 0);
  const TracedText fill = bound.text(1, " ");
  if (!rt.ok()) return {};
  if (pystr::length(fill.bytes()) != 1) return rt.fail(fmt::format("{}(): the fill must be one character", name));
  const auto length = static_cast<long>(self.string().length);
  if (width <= length) return self;
  const auto missing = static_cast<std::size_t>(width - length);
  if (!rt.charge_bytes(self.bytes().size() + missing)) return {};
  const auto w = static_cast<std::size_t>(width);
  const std::size_t left = name == "rjust" ? missing : name == "ljust" ? 0 : missing / 2 + (missing & w & 1);
  TracedText out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill);
  out.append(self.text());
  for (std::size_t i = left; i < missing; ++i) out.append(fill);
  return same_kind(rt, self, std::move(out));
}

Value zero_fill(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"width"}, 1);
  const long width = bound.integer(0, 0);
  const auto length = static_cast<long>(self.string().length);
  if (!rt.ok()) return {};
  if (width <= length) return self;
  const auto missing = static_cast<std::size_t>(width - length);
  if (!rt.charge_bytes(self.bytes().size() + missing)) return {};
  const std::string_view bytes = self.bytes();
  const std::size_t sign = !bytes.empty() && (bytes[0] == '+' || bytes[0] == '-') ? 1 : 0;
  TracedText out = self.text().slice(0, sign);
  out.append(std::string(missing, '0'), false);
  out.append(self.text(), sign, bytes.size());
  return same_kind(rt, self, std::move(out));
}

Value expand_tabs(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Bound bound(rt, name, arguments, {"tabsize"});
  const long size = std::min(bound.integer(0, 8), 1000L);
  if (!rt.ok()) return {};
  TracedText out;
  long column = 0;
  const std::string_view bytes = self.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = pystr::decode(bytes, at);
    if (c != '\t') {
      out.append(self.text(), begin, at);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
      continue;
    }
    const long n = size > 0 ? size - column % size : 0;
    if (!rt.charge_bytes(static_cast<std::uint64_t>(n))) return {};
    out.append_derived(std::string(static_cast<std::size_t>(n), ' '), self.text(), begin, at);
    column += n;
  }
  return same_kind(rt, self, std::move(out));
}

Value is_class(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  using pystr::Class;
  constexpr std::pair<std::string_view, Class> classes[] = {
      {"isalpha", Class::alpha},     {"isalnum", Class::alnum},         {"isdigit", Class::digit},
      {"isdecimal", Class::decimal}, {"isnumeric", Class::numeric},     {"isspace", Class::space},
      {"isupper", Class::upper},     {"islower", Class::lower},         {"istitle", Class::title},
      {"isascii", Class::ascii},     {"isprintable", Class::printable}, {"isidentifier", Class::identifier}};
  const Bound none(rt, name, arguments, {});
  if (!rt.ok() || !rt.step(self.bytes().size() / 16)) return {};
  for (const auto& [method, which] : classes) {
    if (method == name) return Value::boolean(pystr::is_class(self.bytes(), which));
  }
  return {};
}

Value format(Runtime& rt, std::string_view, const Value& self, const Arguments& arguments) {
  return brace_format(rt, self, arguments.positional, arguments.named);
}

constexpr std::pair<std::string_view, Method> methods[] = {
    {"upper", change_case},
    {"lower", change_case},
    {"capitalize", change_case},
    {"title", change_case},
    {"swapcase", change_case},
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"split", split},
    {"rsplit", split},
    {"splitlines", split_lines},
    {"partition", partition},
    {"rpartition", partition},
    {"find", find},
    {"rfind", find},
    {"index", find},
    {"rindex", find},
    {"count", count},
    {"startswith", starts_or_ends},
    {"endswith", starts_or_ends},
    {"replace", replace},
    {"removeprefix", remove_affix},
    {"removesuffix", remove_affix},
    {"join", join},
    {"center", pad},
    {"ljust", pad},
    {"rjust", pad},
    {"zfill", zero_fill},
    {"expandtabs", expand_tabs},
    {"format", format},
    {"isalpha", is_class},
    {"isalnum", is_class},
    {"isdigit", is_class},
    {"isdecimal", is_class},
    {"isnumeric", is_class},
    {"isspace", is_class},
    {"isupper", is_class},
    {"islower", is_class},
    {"istitle", is_class},
    {"isascii", is_class},
    {"isprintable", is_class},
    {"isidentifier", is_class},
};

Method method_named(std::string_view name) {
  for (const auto& [known, method] : methods) {
    if (known == name) return method;
  }
  return nullptr;
}

}  // namespace

bool is_string_method(std::string_view name) { return method_named(name) != nullptr; }

Value call_string_method(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments) {
  const Method method = method_named(name);
  return method ? method(rt, name, self, arguments) : rt.fail(fmt::format("str has no method '{}'", name));
}

Value join_strings(Runtime& rt, const Value& separator, const std::vector<Value>& items) {
  if (!rt.ok()) return {};
  const bool markup = separator.string().markup;
  TracedText out;
  bool first = true;
  for (const Value& item : items) {
    if (!item.is_string() && !markup) {
      return rt.fail(fmt::format("join(): expected str, found {}", type_name(item)));
    }
    if (!first) out.append(separator.text());
    first = false;
    out.append(markup ? escaped_text(rt, item) : item.text());
    if (!rt.step() || out.size() > rt.limits().max_string_bytes) break;
  }
  return rt.text(std::move(out), markup);
}

}  // namespace heddle::text::jinja
