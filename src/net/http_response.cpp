#include "net/http_response.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace heddle::net {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  for (const char c : value) {
    // A line break in a value would let its author write headers, or a body, of their own.
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < ' ' && c != '\t') || byte == 127 ? ' ' : c;
  }
  out += "\r\n";
}

std::string_view cached_date(std::time_t now) {
  thread_local std::time_t cached_time = -1;
  thread_local std::string cached;
  if (now != cached_time) {
    cached = http_date(now);
    cached_time = now;
  }
  return cached;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string http_date(std::time_t time) {
  constexpr std::array days = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  gmtime_r(&time, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                     months[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

void append_head(std::string& out, const ResponseHead& head, std::time_t now) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\nServer: heddle\r\n", head.status,
                 reason_phrase(head.status), cached_date(now));
  if (!head.content_type.empty()) append_header(out, "Content-Type", head.content_type);
  if (has_body(head.status)) {
    if (head.framing == Framing::length) {
      fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", head.length);
    } else if (head.framing == Framing::chunked) {
      out += "Transfer-Encoding: chunked\r\n";
    }
  }
  if (!head.keep_alive) {
    out += "Connection: close\r\n";
  } else if (head.is_http_10) {
    out += "Connection: keep-alive\r\n";
  }
  if (!head.request_id.empty()) append_header(out, "X-Request-Id", head.request_id);
  for (const api::HeaderList* list : {head.common, head.headers}) {
    if (list == nullptr) continue;
    for (const api::HttpHeader& header : *list) append_header(out, header.name, header.value);
  }
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  char size[16];
  const auto end = std::to_chars(size, size + sizeof size, data.size(), 16).ptr;
  out.append(size, end);
  out += "\r\n";
  out += data;
  out += "\r\n";
}

}  // namespace heddle::net
