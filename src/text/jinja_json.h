#pragma once
// Values from a parsed request. All of them, and all that is derived from them, count as the request's.
#include <boost/json/value.hpp>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

// Undefined, with the error in rt, past a limit or for text that is not UTF-8.
Value from_json(Runtime& rt, const boost::json::value& json, int level = 0);

}  // namespace heddle::text::jinja
