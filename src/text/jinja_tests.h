#pragma once
// The tests of Jinja2: what may stand behind `is`.
#include <string_view>

#include "text/jinja_arguments.h"

namespace heddle::text::jinja {

bool apply_test(Runtime& rt, std::string_view name, const Value& subject, const Arguments& arguments);
bool is_test(std::string_view name);

}  // namespace heddle::text::jinja
