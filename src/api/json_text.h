#pragma once
// Writing JSON text straight into a string, for replies: no tree is built on the way out. Any thread.
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace heddle::api {

// Appends a quoted JSON string. Bytes that are not UTF-8 become U+FFFD, so the result is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

template <std::integral I>
void append_number(std::string& out, I value) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Shortest text that reads back as the same double; null for NaN and infinities, which JSON does not have.
void append_number(std::string& out, double value);

}  // namespace heddle::api
