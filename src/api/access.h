#pragma once
// Who may call: API keys, and the headers that let a browser page of another origin call (CORS). Pure functions over a
// request; any thread. Keys are asked for by default: a path is open only if it stands, letter for letter, in the short
// list below, so that a new route, or an odd spelling of an old one, is never open by accident.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http.h"
#include "base/result.h"

namespace heddle::api {

struct AccessPolicy {
  std::vector<std::string> keys;             // --api-key; none: everybody may call
  std::vector<std::string> allowed_origins;  // --allowed-origins; "*" stands for all; none: no CORS headers
};

// Names the flag and what is wrong with its value.
Result<void> validate(const AccessPolicy& policy);

bool is_open_path(std::string_view path);  // /health, /ping, /version, /metrics

// 401 with a JSON error, or nothing when the request may go on.
std::optional<HttpReply> check_key(const AccessPolicy& policy, const HttpRequest& request);

// Position of the request's key in the list, from 1; 0: none of them.
uint32_t key_number(const AccessPolicy& policy, const HttpRequest& request);

// Compares in time that depends on the lengths alone.
bool equals_in_constant_time(std::string_view a, std::string_view b);

// For every answer to this request, whatever its status: nothing for a request without Origin.
HeaderList cors_headers(const AccessPolicy& policy, const HttpRequest& request);

// A browser's question before the real request: OPTIONS with Origin and Access-Control-Request-Method. It carries no
// key.
bool is_preflight(const HttpRequest& request);
HttpReply preflight_reply(const AccessPolicy& policy, const HttpRequest& request);  // cors_headers() come on top

}  // namespace heddle::api
