#include "text/jinja_globals.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

#include "text/jinja_access.h"
#include "text/jinja_repr.h"

namespace heddle::text::jinja {
namespace {

constexpr std::array names = {"range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"};

Value range(Runtime& rt, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) return rt.fail("range() takes 1 to 3 arguments");
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_undefined()) return rt.fail_undefined(given[i]);
    if (!given[i].is_integral())
      return rt.fail(fmt::format("range(): expected an integer, not {}", type_name(given[i])));
    const Integer value = given[i].integer();
    constexpr Integer most = Integer{1} << 60;
    if (value > most || value < -most) return rt.fail_limit("range(): number too large");
    bounds[given.size() == 1 ? 1 : i] = static_cast<std::int64_t>(value);
  }
  if (bounds[2] == 0) return rt.fail("range(): step must not be zero");
  return rt.range(bounds[0], bounds[1], bounds[2]);
}

// dict(mapping or pairs, name=value ...)
std::optional<Dict> make_dict(Runtime& rt, std::string_view function, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    rt.fail(fmt::format("{}() takes at most one positional argument", function));
    return std::nullopt;
  }
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::dict)) {
      if (!rt.step(source.dict().entries.size())) return std::nullopt;
      for (const auto& [key, value] : source.dict().entries) dict.set(key, value);
      continue;
    }
    for (const Value& pair : iterate(rt, source)) {
      const std::vector<Value> parts = iterate(rt, pair);
      if (!rt.ok()) return std::nullopt;
      if (parts.size() != 2 || !hashable(parts[0]) || !rt.charge_key(parts[0])) {
        rt.fail(fmt::format("{}(): expected pairs with a key that can be hashed", function));
        return std::nullopt;
      }
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::literal(name), value);
  if (!rt.ok()) return std::nullopt;
  return dict;
}

Value name_space(Runtime& rt, const Arguments& arguments) {
  std::optional<Dict> dict = make_dict(rt, "namespace", arguments);
  if (!dict) return {};
  for (const auto& [key, value] : dict->entries) {
    if (key.is_string() && key.bytes().starts_with('_')) {
      return rt.fail(fmt::format("a namespace can't hold '{}': the name begins with an underscore", key.bytes()));
    }
  }
  return rt.name_space(std::move(*dict));
}

Value cycler(Runtime& rt, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) return rt.fail("cycler() needs at least one item");
  Callable made;
  made.what = Callable::What::cycler;
  made.name = "cycler";
  made.items = arguments.positional;
  return rt.callable(std::move(made));
}

Value joiner(Runtime& rt, const Arguments& arguments) {
  const Bound bound(rt, "joiner()", arguments, {"sep"});
  if (!rt.ok()) return {};
  Callable made;
  made.what = Callable::What::joiner;
  made.name = "joiner";
  made.items = {bound.has(0) ? bound[0] : Value::literal(", ")};
  return rt.callable(std::move(made));
}

// datetime.now().strftime(format): no time zone, and here no time of day.
Value strftime_now(Runtime& rt, const Arguments& arguments) {
  const Bound bound(rt, "strftime_now()", arguments, {"format"}, 1);
  const TracedText format = bound.text(0, "");
  if (!rt.ok()) return {};
  const std::time_t seconds = std::chrono::system_clock::to_time_t(rt.now());
  std::tm day{};
  localtime_r(&seconds, &day);
  day.tm_hour = day.tm_min = day.tm_sec = 0;

  std::string out;
  const std::string_view text = format.bytes();
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '%' || at + 1 >= text.size()) {
      out.push_back(text[at++]);
      continue;
    }
    std::size_t end = at + 1;
    while (end + 1 < text.size() && std::string_view("-_0^#").find(text[end]) != std::string_view::npos) ++end;
    const char conversion = text[end];
    const std::string directive(text.substr(at, end + 1 - at));
    at = end + 1;
    if (conversion == 'f') {
      out += "000000";
    } else if (conversion == 'z' || conversion == 'Z') {
      continue;  // nothing: the time is naive
    } else if (std::string_view("aAbBcdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYC%").find(conversion) != std::string_view::npos &&
               directive.size() <= 4) {
      char buffer[128];
      out.append(buffer, std::strftime(buffer, sizeof buffer, directive.c_str(), &day));
    } else {
      out += directive;
    }
  }
  return rt.text(TracedText(out, format.any_from_request()));
}

}  // namespace

std::optional<Value> global_function(Runtime& rt, std::string_view name) {
  for (const char* known : names) {
    if (name != known) continue;
    Callable made;
    made.what = Callable::What::function;
    made.name = name;
    return rt.callable(std::move(made));
  }
  return std::nullopt;
}

Value call_global(Runtime& rt, std::string_view name, const Arguments& arguments) {
  if (name == "range") return range(rt, arguments);
  if (name == "dict") {
    std::optional<Dict> dict = make_dict(rt, name, arguments);
    return dict ? rt.dict(std::move(*dict)) : Value();
  }
  if (name == "namespace") return name_space(rt, arguments);
  if (name == "cycler") return cycler(rt, arguments);
  if (name == "joiner") return joiner(rt, arguments);
  if (name == "strftime_now") return strftime_now(rt, arguments);
  const Bound bound(rt, "raise_exception()", arguments, {"message"}, 1);
  if (!rt.ok()) return {};
  const TracedText message = to_text(rt, bound[0]);
  return rt.ok() ? rt.raise(message.bytes()) : Value();
}

}  // namespace heddle::text::jinja
