#include "api/router.h"

#include <doctest/doctest.h>

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

// Endpoints that note their name.
struct Fixture {
  explicit Fixture(AccessPolicy policy = {}) : router(std::move(policy)) {
    add("GET", "/health");
    add("GET", "/v1/models");
    add("GET", "/v1/models/*");
    add("POST", "/v1/chat/completions");
    add("GET", "/v1/models/fixed");
    add("GET", "/ping");
    add("POST", "/ping");
  }
  void add(const std::string& method, const std::string& path) {
    router.add(method, path,
               [this, name = method + " " + path](HttpRequest, std::shared_ptr<ResponseSink>) { called = name; });
  }
  // The status of a refusal, or the name of the endpoint that was called.
  std::string ask(const std::string& method, const std::string& path, HeaderList headers = {}) {
    const HttpRequest head = request(method, path, std::move(headers));
    admission = router.admit(head);
    if (admission.refusal) return std::to_string(admission.refusal->status);
    router.handle(head, nullptr);
    return called;
  }

  Router router;
  Admission admission;
  std::string called;
};

}  // namespace

TEST_CASE("paths are matched letter for letter, methods too, and HEAD is answered by GET") {
  Fixture f;
  struct {
    const char *method, *path, *expected;
  } const cases[] = {
      {"GET", "/health", "GET /health"},
      {"HEAD", "/health", "GET /health"},
      {"HEAD", "/v1/models", "GET /v1/models"},
      {"POST", "/ping", "POST /ping"},
      {"POST", "/v1/chat/completions", "POST /v1/chat/completions"},
      {"GET", "/v1/models/org/name", "GET /v1/models/*"},
      {"GET", "/v1/models/fixed", "GET /v1/models/fixed"},
      {"GET", "/v1/models/", "404"},
      {"GET", "/health/", "404"},
      {"GET", "//health", "404"},
      {"GET", "/Health", "404"},
      {"GET", "/", "404"},
      {"GET", "", "404"},
      {"GET", "*", "404"},
      {"GET", "/v1/*", "404"},
      {"get", "/health", "405"},
      {"POST", "/health", "405"},
      {"GET", "/v1/chat/completions", "405"},
      {"HEAD", "/v1/chat/completions", "405"},
      {"DELETE", "/ping", "405"},
      {"OPTIONS", "/health", "204"},
      {"OPTIONS", "/nothing", "404"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.method);
    CAPTURE(c.path);
    CHECK(f.ask(c.method, c.path) == c.expected);
  }
}

TEST_CASE("404 and 405 are JSON, 405 and OPTIONS say what is allowed") {
  Fixture f;
  f.ask("GET", "/nothing");
  CHECK(f.admission.refusal->content_type == "application/json");
  CHECK(f.admission.refusal->body.find("'/nothing'") != std::string::npos);
  f.ask("DELETE", "/ping");
  CHECK(find_header(f.admission.refusal->headers, "Allow") == "GET, HEAD, POST, OPTIONS");
  f.ask("OPTIONS", "/v1/chat/completions");
  CHECK(find_header(f.admission.refusal->headers, "Allow") == "POST, OPTIONS");
}

TEST_CASE("a coded body is refused by name") {
  Fixture f;
  CHECK(f.ask("POST", "/v1/chat/completions", {{"Content-Encoding", "gzip"}}) == "415");
  CHECK(f.admission.refusal->body.find("'gzip'") != std::string::npos);
  CHECK(f.ask("POST", "/v1/chat/completions", {{"Content-Encoding", "identity"}}) == "POST /v1/chat/completions");
}

TEST_CASE("with a key, every route but the open ones asks for it, before it says whether it exists") {
  Fixture f({{"secret"}, {"https://chat.example"}});
  const HeaderList key = {{"Authorization", "Bearer secret"}};
  CHECK(f.ask("GET", "/health") == "GET /health");
  CHECK(f.ask("GET", "/v1/models") == "401");
  CHECK(f.ask("GET", "/v1/models/fixed") == "401");
  CHECK(f.ask("POST", "/v1/chat/completions") == "401");
  CHECK(f.ask("HEAD", "/v1/models") == "401");
  CHECK(f.ask("GET", "/nothing") == "401");
  CHECK(f.ask("GET", "//v1/models") == "401");
  CHECK(f.ask("GET", "/v1/models/") == "401");
  CHECK(f.ask("GET", "/v1/models", key) == "GET /v1/models");
  CHECK(f.ask("GET", "//v1/models", key) == "404");
}

TEST_CASE("an endpoint is told which key a request came with, by position") {
  Router router({{"first", "second"}, {}});
  uint32_t seen = 99;
  router.add("GET", "/v1/models", [&](HttpRequest got, std::shared_ptr<ResponseSink>) { seen = got.key; });
  router.handle(request("GET", "/v1/models", {{"Authorization", "Bearer second"}}), nullptr);
  CHECK(seen == 2);
  router.handle(request("GET", "/v1/models", {{"Authorization", "Bearer first"}}), nullptr);
  CHECK(seen == 1);
  Router open({});
  open.add("GET", "/v1/models", [&](HttpRequest got, std::shared_ptr<ResponseSink>) { seen = got.key; });
  open.handle(request("GET", "/v1/models", {{"Authorization", "Bearer first"}}), nullptr);
  CHECK(seen == 0);
}

TEST_CASE("a preflight needs no key, the call after it does, and errors carry the headers for browsers") {
  Fixture f({{"secret"}, {"https://chat.example"}});
  const HeaderList preflight = {{"Origin", "https://chat.example"}, {"Access-Control-Request-Method", "POST"}};
  CHECK(f.ask("OPTIONS", "/v1/chat/completions", preflight) == "204");
  CHECK(find_header(f.admission.headers, "Access-Control-Allow-Origin") == "https://chat.example");
  const HeaderList origin = {{"Origin", "https://chat.example"}};
  CHECK(f.ask("GET", "/v1/models", origin) == "401");
  CHECK(find_header(f.admission.headers, "Access-Control-Allow-Origin") == "https://chat.example");
  const HeaderList both = {{"Origin", "https://chat.example"}, {"Authorization", "Bearer secret"}};
  CHECK(f.ask("GET", "/nothing", both) == "404");
  CHECK(find_header(f.admission.headers, "Access-Control-Allow-Origin") == "https://chat.example");
  CHECK(f.ask("POST", "/v1/chat/completions", both) == "POST /v1/chat/completions");
  CHECK(find_header(f.admission.headers, "Access-Control-Allow-Origin") == "https://chat.example");
}
