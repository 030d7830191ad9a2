#include "api/router.h"

#include <fmt/format.h>

#include <utility>

#include "api/ascii.h"
#include "api/error.h"
#include "base/check.h"

namespace heddle::api {
namespace {

// Part of a client's text in a message: long or odd text helps nobody.
std::string quoted(std::string_view text) {
  constexpr size_t most = 120;
  return fmt::format("'{}{}'", text.substr(0, most), text.size() > most ? "…" : "");
}

template <class Methods>
std::string allowed(const Methods& methods) {
  std::string out;
  for (const auto& [method, endpoint] : methods) {
    out += method;
    out += ", ";
    if (method == "GET") out += "HEAD, ";
  }
  return out + "OPTIONS";
}

}  // namespace

void Router::add(std::string method, const std::string& path, Endpoint endpoint) {
  const bool is_new = routes_[path].emplace(method, std::move(endpoint)).second;
  if (!is_new) check_failed(__FILE__, __LINE__, "one endpoint a route", method + " " + path);
}

const Router::Methods* Router::find(std::string_view path) const {
  if (const auto exact = routes_.find(path); exact != routes_.end()) return &exact->second;
  for (size_t slash = path.rfind('/'); slash != std::string_view::npos; slash = path.rfind('/', slash - 1)) {
    if (slash + 1 < path.size()) {
      const auto wildcard = routes_.find(std::string(path.substr(0, slash)) + "/*");
      if (wildcard != routes_.end()) return &wildcard->second;
    }
    if (slash == 0) break;
  }
  return nullptr;
}

const Router::Endpoint* Router::find(const Methods& methods, std::string_view method) {
  auto entry = methods.find(method);
  if (entry == methods.end() && method == "HEAD") entry = methods.find("GET");
  return entry != methods.end() ? &entry->second : nullptr;
}

std::optional<HttpReply> Router::refuse(const HttpRequest& head) const {
  if (is_preflight(head)) return preflight_reply(policy_, head);
  const Methods* methods = find(head.path);
  if (head.method == "OPTIONS" && methods != nullptr) return HttpReply{204, {}, {}, {{"Allow", allowed(*methods)}}};
  if (auto reply = check_key(policy_, head)) return reply;
  if (methods == nullptr) return error_reply({404, fmt::format("there is no {} here", quoted(head.path)), {}});
  if (find(*methods, head.method) == nullptr) {
    const std::string list = allowed(*methods);
    HttpReply reply =
        error_reply({405, fmt::format("{} takes {}, not {}", quoted(head.path), list, quoted(head.method)), {}});
    reply.headers.push_back({"Allow", list});
    return reply;
  }
  const auto coding = head.header("Content-Encoding");
  if (coding && !equals_ignoring_case(trim(*coding), "identity")) {
    return error_reply(
        {415, fmt::format("a body in Content-Encoding {} is not read here", quoted(*coding)), "Content-Encoding"});
  }
  return std::nullopt;
}

Admission Router::admit(const HttpRequest& head) { return {cors_headers(policy_, head), refuse(head)}; }

void Router::handle(HttpRequest request, std::shared_ptr<ResponseSink> sink) {
  const Methods* methods = find(request.path);
  const Endpoint* endpoint = methods != nullptr ? find(*methods, request.method) : nullptr;
  HEDDLE_CHECK(endpoint != nullptr);  // admit() let nothing else pass
  if (!policy_.keys.empty()) request.key = key_number(policy_, request);
  (*endpoint)(std::move(request), std::move(sink));
}

}  // namespace heddle::api
