#pragma once
// The methods of str that a template may call.
#include <string_view>

#include "text/jinja_arguments.h"

namespace heddle::text::jinja {

bool is_string_method(std::string_view name);
Value call_string_method(Runtime& rt, std::string_view name, const Value& self, const Arguments& arguments);

// separator.join(items): items must be strings.
Value join_strings(Runtime& rt, const Value& separator, const std::vector<Value>& items);

}  // namespace heddle::text::jinja
