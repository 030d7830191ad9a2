#pragma once
// The filters of Jinja2, with transformers' tojson. Pure but for iterators that they use up.
#include <string_view>

#include "text/jinja_arguments.h"

namespace heddle::text::jinja {

using Filter = Value (*)(Runtime&, const Value& input, const Arguments&);

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments);
bool is_filter(std::string_view name);

// The tables behind it: filters over text and single values, and filters over sequences.
Filter text_filter(std::string_view name);
Filter sequence_filter(std::string_view name);

}  // namespace heddle::text::jinja
