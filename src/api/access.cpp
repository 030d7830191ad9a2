#include "api/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/ascii.h"
#include "api/error.h"

namespace heddle::api {
namespace {

constexpr std::array<std::string_view, 4> open_paths = {"/health", "/ping", "/version", "/metrics"};

bool is_header_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}

bool allows_origin(const AccessPolicy& policy, std::string_view origin) {
  return std::ranges::any_of(policy.allowed_origins,
                             [origin](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

// The token of "Bearer TOKEN"; the scheme's name is compared without case (RFC 9110, 11.1).
std::optional<std::string_view> bearer_token(const HttpRequest& request) {
  // Two headers: which one a proxy before us looked at can't be known.
  if (count_header(request.headers, "Authorization") != 1) return std::nullopt;
  const std::string_view value = trim(*request.header("Authorization"));
  const size_t blank = value.find(' ');
  if (blank == std::string_view::npos || !equals_ignoring_case(value.substr(0, blank), "Bearer")) return std::nullopt;
  const std::string_view token = trim(value.substr(blank + 1));
  if (token.empty()) return std::nullopt;
  return token;
}

}  // namespace

Result<void> validate(const AccessPolicy& policy) {
  for (const std::string& key : policy.keys) {
    if (key.empty()) return fail("--api-key: a key is empty");
    if (!is_header_text(key))
      return fail("--api-key: a key has a blank, or a character outside ASCII, which no client can send");
  }
  for (const std::string& origin : policy.allowed_origins) {
    if (origin == "*") continue;
    const size_t scheme_end = origin.find("://");
    if (scheme_end == 0 || scheme_end == std::string::npos || !is_header_text(origin) ||
        origin.find('/', scheme_end + 3) != std::string::npos) {
      return fail(
          fmt::format("--allowed-origins: '{}' is no origin; it looks like https://host:port, or * for all", origin));
    }
  }
  return {};
}

bool is_open_path(std::string_view path) { return std::ranges::find(open_paths, path) != open_paths.end(); }

bool equals_in_constant_time(std::string_view a, std::string_view b) {
  size_t difference = a.size() ^ b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

uint32_t key_number(const AccessPolicy& policy, const HttpRequest& request) {
  const auto token = bearer_token(request);
  if (!token) return 0;
  uint32_t number = 0;
  // No early end: the time must not tell which of several keys came close.
  for (size_t i = 0; i < policy.keys.size(); ++i) {
    const bool equal = equals_in_constant_time(*token, policy.keys[i]);
    number += static_cast<uint32_t>(equal && number == 0) * static_cast<uint32_t>(i + 1);
  }
  return number;
}

std::optional<HttpReply> check_key(const AccessPolicy& policy, const HttpRequest& request) {
  if (policy.keys.empty() || is_open_path(request.path)) return std::nullopt;
  if (key_number(policy, request) > 0) return std::nullopt;
  HttpReply reply = error_reply({401, "this server needs the header 'Authorization: Bearer KEY' with a valid key", {}});
  reply.headers.push_back({"WWW-Authenticate", "Bearer realm=\"heddle\""});
  return reply;
}

HeaderList cors_headers(const AccessPolicy& policy, const HttpRequest& request) {
  const auto origin = request.header("Origin");
  if (!origin || policy.allowed_origins.empty()) return {};
  const bool open_to_all = std::ranges::find(policy.allowed_origins, "*") != policy.allowed_origins.end();
  HeaderList headers;
  // The answer differs by origin, whether this one is allowed or not: caches must know.
  if (!open_to_all) headers.push_back({"Vary", "Origin"});
  if (!allows_origin(policy, *origin)) return headers;
  headers.push_back({"Access-Control-Allow-Origin", open_to_all ? "*" : std::string(*origin)});
  headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, WWW-Authenticate, Retry-After"});
  return headers;
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.header("Origin") && request.header("Access-Control-Request-Method");
}

HttpReply preflight_reply(const AccessPolicy& policy, const HttpRequest& request) {
  HttpReply reply;
  reply.status = 204;
  if (!allows_origin(policy, request.header("Origin").value_or(""))) return reply;
  reply.headers.push_back({"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"});
  // "*" would not cover Authorization, so the browser's own list is granted.
  const auto wanted = request.header("Access-Control-Request-Headers");
  if (wanted) reply.headers.push_back({"Access-Control-Allow-Headers", std::string(*wanted)});
  reply.headers.push_back({"Access-Control-Max-Age", "86400"});
  reply.headers.push_back({"Vary", "Access-Control-Request-Headers"});
  return reply;
}

}  // namespace heddle::api
