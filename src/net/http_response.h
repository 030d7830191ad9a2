#pragma once
// Writing HTTP/1.x answers as text. Pure functions over strings (the date is cached per thread); any thread.
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "api/http.h"

namespace heddle::net {

// How the reader finds the end of the body.
enum class Framing : uint8_t {
  length,       // Content-Length
  chunked,      // HTTP/1.1 stream
  until_close,  // HTTP/1.0 stream
};

struct ResponseHead {
  int status = 200;
  std::string_view content_type;             // none when empty
  const api::HeaderList* common = nullptr;   // of the admission
  const api::HeaderList* headers = nullptr;  // of this answer
  std::string_view request_id;               // none when empty
  Framing framing = Framing::length;
  uint64_t length = 0;
  bool keep_alive = true;
  bool is_http_10 = false;
};

std::string_view reason_phrase(int status);
constexpr bool has_body(int status) { return status >= 200 && status != 204 && status != 304; }

void append_head(std::string& out, const ResponseHead& head, std::time_t now);
void append_chunk(std::string& out, std::string_view data);  // nothing for no data, which would read as the end
constexpr std::string_view last_chunk = "0\r\n\r\n";
constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";

std::string http_date(std::time_t time);  // "Sun, 06 Nov 1994 08:49:37 GMT"

}  // namespace heddle::net
