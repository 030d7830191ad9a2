#pragma once
// The query of a URL as names and values, percent escapes and '+' decoded. Pure; any thread.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace heddle::api {

struct QueryParameter {
  std::string name, value;
};

// In the order sent; a name may occur more than once. A broken escape is an error that shows the parameter.
Result<std::vector<QueryParameter>> parse_query(std::string_view query);

}  // namespace heddle::api
