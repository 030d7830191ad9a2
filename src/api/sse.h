#pragma once
// Server-sent events as text: one whole event a write, so that comments of the network layer never split one. Pure
// functions.
#include <string>
#include <string_view>

namespace heddle::api {

constexpr std::string_view sse_content_type = "text/event-stream; charset=utf-8";
constexpr std::string_view sse_done = "data: [DONE]\n\n";
// A frame of its own, without data: clients skip it, proxies see life.
constexpr std::string_view sse_keep_alive = ": keep-alive\n\n";

// "data: <data>\n\n" behind `out`. Data on several lines becomes several data lines of one event.
inline void append_sse_event(std::string& out, std::string_view data) {
  for (;;) {
    out += "data: ";
    const size_t line_end = data.find_first_of("\r\n");
    out += data.substr(0, line_end);
    out += '\n';
    if (line_end == std::string_view::npos) break;
    const bool is_crlf = data.substr(line_end).starts_with("\r\n");
    data.remove_prefix(line_end + (is_crlf ? 2 : 1));
  }
  out += '\n';
}

}  // namespace heddle::api
