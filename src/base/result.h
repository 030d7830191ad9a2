#pragma once
// Result<T>: a value or the reason why there is none. Client faults, bad files and bad configuration travel this way;
// bugs abort through base/check.h. No exceptions across coroutines.
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace heddle {

// One line for a person: names the field, tensor or flag, and what was wrong with it.
struct Error {
  std::string message;
};

template <class T, class E = Error>
using Result = tl::expected<T, E>;

inline tl::unexpected<Error> fail(std::string message) { return tl::unexpected<Error>(Error{std::move(message)}); }

}  // namespace heddle
