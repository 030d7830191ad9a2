#include "text/jinja_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja_access.h"
#include "text/jinja_format.h"
#include "text/jinja_loop.h"
#include "text/jinja_operators.h"
#include "text/jinja_string_methods.h"

namespace heddle::text::jinja {
namespace {

constexpr std::array dict_methods = {"keys", "values", "items", "get", "copy"};
constexpr std::array dict_changes = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array list_methods = {"count", "index"};
constexpr std::array list_changes = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::array loop_methods = {"cycle", "changed"};
constexpr std::array cycler_methods = {"next", "reset"};

template <std::size_t n>
bool among(const std::array<const char*, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

MethodAccess access(bool allowed, bool forbidden = false) {
  return allowed ? MethodAccess::allowed : forbidden ? MethodAccess::forbidden : MethodAccess::none;
}

Value view(Runtime& rt, const Value& self, List::Flavour flavour) {
  std::vector<Value> items;
  if (!rt.step(self.dict().entries.size())) return {};
  for (const auto& [key, value] : self.dict().entries) {
    switch (flavour) {
      case List::Flavour::dict_keys:
        items.push_back(key);
        break;
      case List::Flavour::dict_values:
        items.push_back(value);
        break;
      default:
        items.push_back(rt.tuple({key, value}, self.from_request()));
    }
  }
  return rt.list(std::move(items), self.from_request(), flavour);
}

Value call_dict(Runtime& rt, const std::string& name, const Value& self, const Arguments& arguments) {
  if (name == "get") {
    const Bound bound(rt, "get()", arguments, {"key", "default"}, 1);
    if (!rt.ok() || !rt.charge_key(bound[0])) return {};
    if (!hashable(bound[0])) return rt.fail(fmt::format("unhashable type: '{}'", type_name(bound[0])));
    const Value* value = self.dict().find(bound[0]);
    return value ? *value : bound.has(1) ? bound[1] : Value::none();
  }
  const Bound none(rt, name + "()", arguments, {});
  if (!rt.ok()) return {};
  if (name == "keys") return view(rt, self, List::Flavour::dict_keys);
  if (name == "values") return view(rt, self, List::Flavour::dict_values);
  if (name == "items") return view(rt, self, List::Flavour::dict_items);
  return self;  // copy: nothing can change either of the two
}

Value call_list(Runtime& rt, const std::string& name, const Value& self, const Arguments& arguments) {
  if (name == "copy") return self;
  const Bound bound(rt, name + "()", arguments, {"value"}, 1);
  if (!rt.ok()) return {};
  const auto& items = self.list().items;
  Integer count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!rt.charge_comparison(items[i], bound[0])) return {};
    if (!equal(items[i], bound[0])) continue;
    if (name == "index") return Value::integer(static_cast<Integer>(i));
    ++count;
  }
  if (name == "index") return rt.fail("index(): the value is not in the list");
  return Value::integer(count);
}

Value call_loop(Runtime& rt, const std::string& name, LoopState& loop, const Arguments& arguments) {
  const auto& values = arguments.positional;
  if (!arguments.named.empty()) return rt.fail(fmt::format("loop.{}() takes no keyword arguments", name));
  if (name == "cycle") {
    if (values.empty()) return rt.fail("loop.cycle(): no items for cycling given");
    return values[loop.index % values.size()];
  }
  bool same = loop.changed_before && loop.last_changed.size() == values.size();
  for (std::size_t i = 0; same && i < values.size(); ++i) {
    if (!rt.charge_comparison(values[i], loop.last_changed[i])) return {};
    same = equal(values[i], loop.last_changed[i]);
  }
  if (!same && !loop.ended) loop.last_changed = values;
  loop.changed_before = true;
  return Value::boolean(!same);
}

Value call_cycler(const std::string& name, Callable& cycler) {
  if (name == "reset") {
    cycler.position = 0;
    return Value::none();
  }
  return cycler.items[cycler.position++ % cycler.items.size()];
}

}  // namespace

MethodAccess method_access(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::string:
      return access(is_string_method(name));
    case Kind::dict:
      return access(among(dict_methods, name), among(dict_changes, name));
    case Kind::list:
      if (!object.list().indexable()) return MethodAccess::none;
      if (object.list().flavour != List::Flavour::list) return access(among(list_methods, name));
      return access(among(list_methods, name) || name == "copy", among(list_changes, name));
    case Kind::loop:
      return access(among(loop_methods, name));
    case Kind::callable:
      return access(object.callable().what == Callable::What::cycler && among(cycler_methods, name));
    case Kind::real:
      return access(name == "is_integer");
    default:
      return MethodAccess::none;
  }
}

Value call_method(Runtime& rt, const Callable& method, const Arguments& arguments) {
  const Value& self = method.self;
  switch (self.kind()) {
    case Kind::string:
      return call_string_method(rt, method.name, self, arguments);
    case Kind::dict:
      return call_dict(rt, method.name, self, arguments);
    case Kind::list:
      return call_list(rt, method.name, self, arguments);
    case Kind::loop:
      return call_loop(rt, method.name, self.loop(), arguments);
    case Kind::callable:
      return call_cycler(method.name, self.callable());
    case Kind::real:
      return Value::boolean(std::isfinite(self.real()) && std::floor(self.real()) == self.real());
    default:
      return rt.fail(fmt::format("'{}' object is not callable", type_name(self)));
  }
}

}  // namespace heddle::text::jinja
