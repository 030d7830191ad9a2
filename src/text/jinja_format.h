#pragma once
// Python's two ways to format strings: "..." % values and "...".format(...).
#include <utility>
#include <vector>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

// values: a tuple, a dict for %(name)s, or one value.
Value percent_format(Runtime& rt, const Value& format, const Value& values);
Value brace_format(Runtime& rt, const Value& format, const std::vector<Value>& positional,
                   const std::vector<std::pair<std::string, Value>>& named);

}  // namespace heddle::text::jinja
