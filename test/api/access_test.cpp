#include "api/access.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace heddle::api;

namespace {

HttpRequest request(std::string method, std::string path, HeaderList headers = {}) {
  HttpRequest out;
  out.method = std::move(method);
  out.path = std::move(path);
  out.headers = std::move(headers);
  return out;
}

AccessPolicy with_keys(std::vector<std::string> keys) { return {std::move(keys), {}}; }

}  // namespace

TEST_CASE("without keys everybody may call") { CHECK(!check_key({}, request("POST", "/v1/chat/completions"))); }

TEST_CASE("the right key opens every path") {
  const AccessPolicy policy = with_keys({"first", "secret"});
  for (const char* path : {"/v1/models", "/tokenize", "/anything"}) {
    CHECK(!check_key(policy, request("GET", path, {{"Authorization", "Bearer secret"}})));
    CHECK(!check_key(policy, request("GET", path, {{"authorization", "bearer first"}})));
    CHECK(!check_key(policy, request("GET", path, {{"AUTHORIZATION", "BEARER  secret "}})));
  }
}

TEST_CASE("anything but one right key is 401 in JSON, on every spelling of every path") {
  const AccessPolicy policy = with_keys({"secret"});
  const std::vector<std::pair<std::string, HeaderList>> attempts = {
      {"no header", {}},
      {"wrong key", {{"Authorization", "Bearer wrong"}}},
      {"empty Bearer", {{"Authorization", "Bearer "}}},
      {"Bearer alone", {{"Authorization", "Bearer"}}},
      {"empty header", {{"Authorization", ""}}},
      {"no scheme", {{"Authorization", "secret"}}},
      {"another scheme", {{"Authorization", "Basic secret"}}},
      {"a longer key", {{"Authorization", "Bearer secret2"}}},
      {"a shorter key", {{"Authorization", "Bearer secre"}}},
      {"the key twice over", {{"Authorization", "Bearer secretsecret"}}},
      {"upper case", {{"Authorization", "Bearer SECRET"}}},
      {"two keys in one header", {{"Authorization", "Bearer secret, Bearer secret"}}},
      {"two headers", {{"Authorization", "Bearer secret"}, {"Authorization", "Bearer wrong"}}},
      {"two right headers", {{"Authorization", "Bearer secret"}, {"authorization", "Bearer secret"}}},
      {"another header", {{"X-Api-Key", "secret"}, {"Api-Key", "secret"}, {"Cookie", "Authorization=Bearer secret"}}},
      {"a proxy's header", {{"Proxy-Authorization", "Bearer secret"}}},
  };
  const std::vector<std::string> paths = {"/v1/models",
                                          "//v1/models",
                                          "/v1/models/",
                                          "/V1/models",
                                          "/v1/chat/completions",
                                          "/tokenize",
                                          "/",
                                          "*",
                                          "",
                                          "/health/",
                                          "//health",
                                          "/Health",
                                          "/health/x",
                                          "/metricsx",
                                          "/health ",
                                          "/v1/../health",
                                          "/invocations",
                                          "/docs"};
  for (const auto& [name, headers] : attempts) {
    CAPTURE(name);
    for (const std::string& path : paths) {
      CAPTURE(path);
      for (const char* method : {"GET", "HEAD", "POST", "OPTIONS", "BREW"}) {
        HttpRequest attempt = request(method, path, headers);
        attempt.query = "api_key=secret";
        const auto reply = check_key(policy, attempt);
        REQUIRE(reply.has_value());
        CHECK(reply->status == 401);
        CHECK(find_header(reply->headers, "WWW-Authenticate") == "Bearer realm=\"heddle\"");
        CHECK(reply->content_type == "application/json");
        CHECK(reply->body.starts_with("{\"error\":{"));
        CHECK(reply->body.find("secret") == std::string::npos);
      }
    }
  }
}

TEST_CASE("the written list of open paths needs no key") {
  const AccessPolicy policy = with_keys({"secret"});
  for (const char* path : {"/health", "/ping", "/version", "/metrics"}) {
    CHECK(is_open_path(path));
    CHECK(!check_key(policy, request("GET", path)));
    CHECK(!check_key(policy, request("GET", path, {{"Authorization", "Bearer wrong"}})));
  }
}

TEST_CASE("the constant-time comparison is an equality") {
  const std::vector<std::string> texts = {
      "", "a", "b", "aa", "ab", "aaa", "abab", std::string(1, '\0'), std::string("a\0", 2)};
  for (const std::string& a : texts) {
    for (const std::string& b : texts) CHECK(equals_in_constant_time(a, b) == (a == b));
  }
}

TEST_CASE("a browser of an allowed origin gets its headers on every answer") {
  AccessPolicy policy;
  policy.allowed_origins = {"https://chat.example", "http://localhost:3000"};
  const HttpRequest allowed = request("POST", "/v1/chat/completions", {{"Origin", "http://localhost:3000"}});
  const HeaderList headers = cors_headers(policy, allowed);
  CHECK(find_header(headers, "Access-Control-Allow-Origin") == "http://localhost:3000");
  CHECK(find_header(headers, "Vary") == "Origin");
  CHECK(find_header(headers, "Access-Control-Expose-Headers").has_value());

  for (const char* origin :
       {"http://localhost:3001", "https://localhost:3000", "http://localhost", "null", "https://chat.example.evil"}) {
    CAPTURE(origin);
    const HeaderList refused = cors_headers(policy, request("GET", "/v1/models", {{"Origin", origin}}));
    CHECK(!find_header(refused, "Access-Control-Allow-Origin"));
    CHECK(find_header(refused, "Vary") == "Origin");
  }
  CHECK(cors_headers(policy, request("GET", "/v1/models")).empty());
}

TEST_CASE("a star allows all origins, and no list allows none") {
  AccessPolicy open;
  open.allowed_origins = {"*"};
  const HttpRequest call = request("GET", "/v1/models", {{"Origin", "https://anywhere.example"}});
  CHECK(find_header(cors_headers(open, call), "Access-Control-Allow-Origin") == "*");
  CHECK(!find_header(cors_headers(open, call), "Vary"));
  CHECK(cors_headers({}, call).empty());
}

TEST_CASE("a preflight is answered 204 with what the browser asked for, and only to an allowed origin") {
  AccessPolicy policy = with_keys({"secret"});
  policy.allowed_origins = {"https://chat.example"};
  const HttpRequest ask = request("OPTIONS", "/v1/chat/completions",
                                  {{"Origin", "https://chat.example"},
                                   {"Access-Control-Request-Method", "POST"},
                                   {"Access-Control-Request-Headers", "authorization, content-type"}});
  REQUIRE(is_preflight(ask));
  const HttpReply reply = preflight_reply(policy, ask);
  CHECK(reply.status == 204);
  CHECK(reply.body.empty());
  CHECK(find_header(reply.headers, "Access-Control-Allow-Headers") == "authorization, content-type");
  CHECK(find_header(reply.headers, "Access-Control-Allow-Methods")->find("POST") != std::string_view::npos);

  HttpRequest foreign = ask;
  foreign.headers[0].value = "https://evil.example";
  CHECK(preflight_reply(policy, foreign).headers.empty());
  CHECK(!is_preflight(request("OPTIONS", "/v1/models", {{"Origin", "https://chat.example"}})));
  CHECK(!is_preflight(request("GET", "/v1/models", ask.headers)));
}

TEST_CASE("a policy that could never work is refused, naming its flag") {
  CHECK(validate({{"k"}, {"*", "https://a.example:8443", "http://[::1]:80"}}).has_value());
  CHECK(validate({{""}, {}}).error().message.starts_with("--api-key: "));
  CHECK(validate({{"two words"}, {}}).error().message.starts_with("--api-key: "));
  CHECK(validate({{"caf\xc3\xa9"}, {}}).error().message.starts_with("--api-key: "));
  for (const char* bad :
       {"", "localhost:3000", "https://a.example/", "https://a.example/path", "://x", "https://a b"}) {
    CAPTURE(bad);
    const auto result = validate({{}, {bad}});
    REQUIRE(!result.has_value());
    CHECK(result.error().message.starts_with("--allowed-origins: "));
  }
}
