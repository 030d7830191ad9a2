#include "text/jinja_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "text/jinja_loop.h"
#include "text/jinja_methods.h"
#include "text/jinja_repr.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

std::string described(const Value& object) {
  if (object.is_none()) return "None";
  return std::string(type_name(object)) + " object";
}

Value missing(Runtime& rt, const Value& object, const Value& key) {
  if (key.is_string()) {
    return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(object), key.bytes()));
  }
  return Value::undefined(fmt::format("{} has no element {}", described(object), repr(rt, key).bytes()));
}

Value missing(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(object), name));
}

Value character(Runtime& rt, const Value& text, std::size_t index) {
  const std::string_view bytes = text.bytes();
  const bool ascii = bytes.size() == text.string().length;
  if (!ascii && !rt.charge_search(bytes.size())) return {};
  const std::size_t begin = ascii ? index : pystr::offset(bytes, index);
  const std::size_t end = begin + pystr::offset(bytes.substr(begin, 4), 1);
  return rt.text(text.text().slice(begin, end), text.string().markup);
}

std::optional<Value> loop_attribute(const LoopState& loop, std::string_view name) {
  const auto number = [](std::size_t n) { return Value::integer(static_cast<Integer>(n)); };
  const std::size_t n = loop.items.size();
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(n - loop.index);
  if (name == "revindex0") return number(n - loop.index - 1);
  if (name == "first") return Value::boolean(loop.index == 0);
  if (name == "last") return Value::boolean(loop.index + 1 == n);
  if (name == "length") return number(n);
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") {
    return loop.index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return loop.index + 1 < n ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  }
  return {};
}

// What Python's getattr finds on the object itself.
std::optional<Value> own_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::name_space)) {
    const Value* value = object.name_space().attributes.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  if (object.is(Kind::loop)) {
    if (std::optional<Value> value = loop_attribute(object.loop(), name)) return value;
  }
  if (object.is(Kind::callable)) {
    const Callable& callable = object.callable();
    if (callable.what == Callable::What::macro && name == "name") return Value::literal(callable.name);
    if (callable.what == Callable::What::cycler && name == "current") {
      return callable.items[callable.position % callable.items.size()];
    }
  }
  if (object.is(Kind::list) && object.list().is_group) {
    if (name == "grouper") return object.list().items[0];
    if (name == "list") return object.list().items[1];
  }
  switch (method_access(object, name)) {
    case MethodAccess::allowed:
      return rt.method(std::string(name), object);
    case MethodAccess::forbidden:
      return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)),
                              true);
    case MethodAccess::none:
      break;
  }
  return {};
}

// object[key]
std::optional<Value> own_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is(Kind::dict)) {
    if (!rt.charge_key(key)) return {};
    const Value* value = object.dict().find(key);
    return value ? std::optional(*value) : std::nullopt;
  }
  if (!key.is_integral()) return {};
  Integer index = key.integer();
  if (object.is(Kind::list) && object.list().indexable()) {
    const auto& items = object.list().items;
    if (index < 0) index += static_cast<Integer>(items.size());
    if (index >= 0 && index < static_cast<Integer>(items.size())) return items[static_cast<std::size_t>(index)];
  } else if (object.is_string()) {
    const auto length = static_cast<Integer>(object.string().length);
    if (index < 0) index += length;
    if (index >= 0 && index < length) return character(rt, object, static_cast<std::size_t>(index));
  }
  return {};
}

// Python's slice.indices for one bound.
bool bound(Runtime& rt, const Value& value, Integer length, Integer lowest, Integer highest, Integer& out) {
  if (value.is_none()) return true;
  if (!value.is_integral()) {
    rt.fail(fmt::format("slice indices must be integers or None, not {}", type_name(value)));
    return false;
  }
  Integer index = value.integer();
  if (index < 0) index += length;
  out = std::clamp(index, lowest, highest);
  return true;
}

}  // namespace

bool iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::dict:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(Runtime& rt, const Value& value) {
  std::vector<Value> items;
  if (!rt.ok()) return items;
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::string: {
      if (!rt.step(4 * value.string().length)) break;
      const std::string_view bytes = value.bytes();
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t begin = at;
        pystr::decode(bytes, at);
        items.push_back(Value::string(value.text().slice(begin, at)));
      }
      break;
    }
    case Kind::list:
      if (rt.step(value.list().items.size())) items = value.list().items;
      break;
    case Kind::dict:
      if (!rt.step(value.dict().entries.size())) break;
      for (const auto& [key, item] : value.dict().entries) items.push_back(key);
      break;
    case Kind::iterator: {
      Iterator& iterator = value.iterator();
      if (!rt.step(iterator.items.size() - iterator.next)) break;
      items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      rt.fail(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  return items;
}

Value attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (!rt.ok()) return {};
  if (object.is_undefined()) return rt.fail_undefined(object);
  if (const std::optional<Value> value = own_attribute(rt, object, name)) return *value;
  if (object.is(Kind::dict)) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return missing(object, name);
}

Value attribute_only(Runtime& rt, const Value& object, std::string_view name) {
  if (!rt.ok()) return {};
  if (object.is_undefined()) return rt.fail_undefined(object);
  return own_attribute(rt, object, name).value_or(missing(object, name));
}

Value item(Runtime& rt, const Value& object, const Value& key) {
  if (!rt.ok()) return {};
  if (object.is_undefined()) return rt.fail_undefined(object);
  if (const std::optional<Value> value = own_item(rt, object, key)) return *value;
  if (key.is_string()) {
    if (const std::optional<Value> value = own_attribute(rt, object, key.bytes())) return *value;
  }
  return missing(rt, object, key);
}

Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (!rt.ok()) return {};
  if (object.is_undefined()) return rt.fail_undefined(object);
  const bool list = object.is(Kind::list) && object.list().indexable();
  if (!list && !object.is_string()) return rt.fail(fmt::format("'{}' object can't be sliced", type_name(object)));
  const auto length = static_cast<Integer>(list ? object.list().items.size() : object.string().length);
  Integer by = 1;
  if (!step.is_none()) {
    if (!step.is_integral()) return rt.fail(fmt::format("slice step must be an integer, not {}", type_name(step)));
    by = step.integer();
    if (by == 0) return rt.fail("slice step cannot be zero");
    by = std::clamp(by, -(length + 1), length + 1);
  }
  Integer from = by > 0 ? 0 : length - 1;
  Integer to = by > 0 ? length : -1;
  const Integer lowest = by > 0 ? 0 : -1;
  const Integer highest = by > 0 ? length : length - 1;
  if (!bound(rt, start, length, lowest, highest, from) || !bound(rt, stop, length, lowest, highest, to)) return {};

  if (!list) {
    const std::string_view bytes = object.bytes();
    if (!rt.charge_search(bytes.size())) return {};
    TracedText out;
    if (by == 1) {
      const std::size_t begin = pystr::offset(bytes, static_cast<std::size_t>(from));
      const std::size_t size =
          to > from ? pystr::offset(bytes.substr(begin), static_cast<std::size_t>(to - from)) : std::size_t{0};
      return rt.text(object.text().slice(begin, begin + size), object.string().markup);
    }
    if (!rt.step(object.string().length)) return {};
    std::vector<std::size_t> starts;
    for (std::size_t at = 0; at < bytes.size(); pystr::decode(bytes, at)) starts.push_back(at);
    starts.push_back(bytes.size());
    for (Integer i = from; by > 0 ? i < to : i > to; i += by) {
      out.append(object.text(), starts[static_cast<std::size_t>(i)], starts[static_cast<std::size_t>(i) + 1]);
    }
    return rt.text(std::move(out), object.string().markup);
  }
  const List& whole = object.list();
  if (whole.flavour == List::Flavour::range) {
    const auto at = [&](Integer i) { return whole.start + static_cast<std::int64_t>(i) * whole.step; };
    return rt.range(at(from), at(to), whole.step * static_cast<std::int64_t>(by));
  }
  std::vector<Value> items;
  for (Integer i = from; by > 0 ? i < to : i > to; i += by) {
    if (!rt.step()) return {};
    items.push_back(whole.items[static_cast<std::size_t>(i)]);
  }
  return rt.list(std::move(items), object.from_request(), whole.flavour);
}

}  // namespace heddle::text::jinja
