#pragma once
// Getting at what is inside a value: elements, attributes, items, slices, as Jinja2's sandbox allows them.
#include <string_view>
#include <vector>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

// Python's iter(): the elements that a for loop sees. An iterator is used up by it.
std::vector<Value> iterate(Runtime& rt, const Value& value);
bool iterable(const Value& value);

// object.name and object[key] as Jinja2's sandbox resolves them: one falls back to the other, absence is undefined.
Value attribute(Runtime& rt, const Value& object, std::string_view name);
// object.name without the fall-back to an item, as |attr does.
Value attribute_only(Runtime& rt, const Value& object, std::string_view name);
Value item(Runtime& rt, const Value& object, const Value& key);
// Bounds that are none or undefined are open.
Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace heddle::text::jinja
