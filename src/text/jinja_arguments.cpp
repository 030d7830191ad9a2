#include "text/jinja_arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::text::jinja {

Bound::Bound(Runtime& rt, std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, std::size_t required)
    : rt_(rt), function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size()) {
    rt.fail(fmt::format("{} takes at most {} arguments, {} given", function, parameters.size(),
                        arguments.positional.size()));
    return;
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) {
      rt.fail(fmt::format("{} got an unexpected keyword argument '{}'", function, name));
      return;
    }
    std::optional<Value>& slot = values_[static_cast<std::size_t>(found - parameters_.begin())];
    if (slot) {
      rt.fail(fmt::format("{} got two values for argument '{}'", function, name));
      return;
    }
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      rt.fail(fmt::format("{} is missing its argument '{}'", function, parameters_[i]));
      return;
    }
  }
}

long Bound::integer(std::size_t i, long otherwise) const {
  if (!has(i)) return otherwise;
  const Value& value = *values_[i];
  if (value.is_integral()) {
    constexpr Integer most = Integer{1} << 62;
    return static_cast<long>(std::clamp(value.integer(), -most, most));
  }
  rt_.fail(fmt::format("{}: argument '{}' must be an integer, not {}", function_, parameters_[i], type_name(value)));
  return otherwise;
}

TracedText Bound::text(std::size_t i, std::string_view otherwise) const {
  if (!has(i)) return TracedText(otherwise, false);
  const Value& value = *values_[i];
  if (value.is_string()) return value.text();
  rt_.fail(fmt::format("{}: argument '{}' must be a string, not {}", function_, parameters_[i], type_name(value)));
  return {};
}

}  // namespace heddle::text::jinja
