#include "api/http.h"

#include <algorithm>

#include "api/ascii.h"

namespace heddle::api {

std::optional<std::string_view> find_header(const HeaderList& headers, std::string_view name) {
  for (const HttpHeader& header : headers) {
    if (equals_ignoring_case(header.name, name)) return header.value;
  }
  return std::nullopt;
}

size_t count_header(const HeaderList& headers, std::string_view name) {
  return static_cast<size_t>(std::ranges::count_if(
      headers, [name](const HttpHeader& header) { return equals_ignoring_case(header.name, name); }));
}

}  // namespace heddle::api
