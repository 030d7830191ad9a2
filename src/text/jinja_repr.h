#pragma once
// Values as text: Python's str() and repr(), and the tojson of chat templates. Text keeps its origin; brackets, quotes
// and escapes take that of the value they belong to.
#include <optional>
#include <string>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

// str(value); empty (with the error in rt) past a limit. Undefined gives "".
TracedText to_text(Runtime& rt, const Value& value);
TracedText repr(Runtime& rt, const Value& value);

// json.dumps, as transformers' tojson calls it.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it; none for one line
  std::optional<std::string> item_separator;
  std::optional<std::string> key_separator;
};
TracedText to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace heddle::text::jinja
