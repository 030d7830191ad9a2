#pragma once
// The arguments of a call in a template, and their binding to the parameters of a built-in, as Python binds them.
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Bound {
 public:
  // function: for messages. Unknown, doubled and surplus arguments are errors in rt.
  Bound(Runtime& rt, std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  bool given(std::size_t i) const { return has(i) && !values_[i]->is_none(); }
  const Value& operator[](std::size_t i) const { return has(i) ? *values_[i] : undefined_; }
  // Each is the default when the argument is absent; another type than asked for is an error in rt.
  bool flag(std::size_t i, bool otherwise) const { return has(i) ? values_[i]->truthy() : otherwise; }
  long integer(std::size_t i, long otherwise) const;
  TracedText text(std::size_t i, std::string_view otherwise) const;

 private:
  Runtime& rt_;
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
  Value undefined_;
};

}  // namespace heddle::text::jinja
