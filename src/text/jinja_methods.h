#pragma once
// The methods of Python's types that a template may call: str, dict, list, tuple, and Jinja2's loop and cycler.
// Methods that change a list or dict are refused, as in Jinja2's immutable sandbox.
#include <cstdint>
#include <string_view>

#include "text/jinja_arguments.h"

namespace heddle::text::jinja {

enum class MethodAccess : std::uint8_t { none, allowed, forbidden };
MethodAccess method_access(const Value& object, std::string_view name);

Value call_method(Runtime& rt, const Callable& method, const Arguments& arguments);

}  // namespace heddle::text::jinja
