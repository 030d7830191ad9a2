#pragma once
// The functions that every template finds: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <optional>
#include <string_view>

#include "text/jinja_arguments.h"

namespace heddle::text::jinja {

std::optional<Value> global_function(Runtime& rt, std::string_view name);
// name: one of those above.
Value call_global(Runtime& rt, std::string_view name, const Arguments& arguments);

}  // namespace heddle::text::jinja
