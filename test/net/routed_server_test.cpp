// Router and server together: access rules as a client meets them, on every spelling of a path.
#include "api/router.h"
#include "test_client.h"
#include "test_server.h"

using namespace heddle;
using namespace heddle::net;

namespace {

std::unique_ptr<api::Router> make_router() {
  auto router = std::make_unique<api::Router>(api::AccessPolicy{{"secret"}, {"https://chat.example"}});
  const auto hello = [](api::HttpRequest, std::shared_ptr<api::ResponseSink> sink) {
    sink->reply({200, "text/plain", "hello", {}});
  };
  const auto events = [](api::HttpRequest, std::shared_ptr<api::ResponseSink> sink) {
    sink->start_stream(200, api::sse_content_type);
    sink->write("data: 1\n\n");
    sink->end();
  };
  router->add("GET", "/health", hello);
  router->add("GET", "/v1/models", hello);
  router->add("POST", "/v1/chat/completions", events);
  return router;
}

std::string text(std::string_view method, std::string_view path, std::string_view headers) {
  return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: t\r\n" + std::string(headers) + "\r\n";
}

}  // namespace

TEST_CASE("no spelling of a path gets by without a key, and a key opens only what exists") {
  const auto router = make_router();
  TestServer server({}, router.get());
  TestClient client(server.port);
  for (const char* path : {"/v1/models", "//v1/models", "/v1/models/", "/V1/models", "/%761/models", "/v1%2Fmodels",
                           "/v1/models?api_key=secret", "http://t/v1/models", "/v1/chat/completions",
                           "/v1/%63hat/completions", "/health/", "/nothing", "/health/../v1/models"}) {
    CAPTURE(path);
    for (const char* method : {"GET", "HEAD", "POST"}) {
      client.send(text(method, path, ""));
      const TestResponse response = client.read(std::string_view(method) == "HEAD");
      CHECK(response.status == 401);
      CHECK(response.has("WWW-Authenticate: Bearer"));
      CHECK(response.has("Content-Type: application/json"));
    }
  }
  struct {
    const char* path;
    int status;
  } const with_key[] = {{"/v1/models", 200},  {"/%761/models", 200},        {"http://t/v1/models", 200},
                        {"//v1/models", 404}, {"/v1/models/", 404},         {"/V1/models", 404},
                        {"/nothing", 404},    {"/v1/chat/completions", 405}};
  for (const auto& c : with_key) {
    CAPTURE(c.path);
    client.send(text("GET", c.path, "Authorization: Bearer secret\r\n"));
    CHECK(client.read().status == c.status);
  }
}

TEST_CASE("an upgrade, a body or an expectation without a key is 401 before anything is read") {
  const auto router = make_router();
  TestServer server({}, router.get());
  TestClient upgrade(server.port);
  upgrade.send(
      text("GET", "/v1/models",
           "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"));
  CHECK(upgrade.read().status == 401);
  TestClient body(server.port);
  body.send(text("POST", "/v1/chat/completions", "Content-Length: 50000000\r\n"));
  CHECK(body.read().status == 401);
  CHECK(body.at_end());
  TestClient waits(server.port);
  waits.send(text("POST", "/v1/chat/completions", "Content-Length: 5\r\nExpect: 100-continue\r\n"));
  CHECK(waits.read().status == 401);
}

TEST_CASE("a browser's page gets its headers on answers, streams and errors, the network's own errors too") {
  const auto router = make_router();
  ServerOptions options;
  options.http.body_bytes = 100;
  TestServer server(options, router.get());
  const std::string origin = "Origin: https://chat.example\r\n", key = "Authorization: Bearer secret\r\n";
  const std::string allows = "Access-Control-Allow-Origin: https://chat.example\r\n";
  TestClient client(server.port);
  client.send(
      text("OPTIONS", "/v1/chat/completions",
           origin + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"));
  const TestResponse preflight = client.read();
  CHECK(preflight.status == 204);
  CHECK(preflight.has(allows));
  CHECK(preflight.has("Access-Control-Allow-Headers: authorization\r\n"));
  client.send(text("GET", "/v1/models", origin));
  const TestResponse refused = client.read();
  CHECK(refused.status == 401);
  CHECK(refused.has(allows));
  client.send(text("POST", "/v1/chat/completions", origin + key + "Content-Length: 0\r\n"));
  const TestResponse stream = client.read();
  CHECK(stream.has("text/event-stream"));
  CHECK(stream.has(allows));
  CHECK(stream.body == "data: 1\n\n");
  client.send(text("GET", "/nothing", origin + key));
  CHECK(client.read().has(allows));
  client.send(text("POST", "/v1/chat/completions", origin + key + "Content-Length: 101\r\n"));
  const TestResponse too_large = client.read();
  CHECK(too_large.status == 413);
  CHECK(too_large.has(allows));
}

TEST_CASE("HEAD, 405 with Allow, and 404 are as they should be over the wire") {
  const auto router = make_router();
  TestServer server({}, router.get());
  TestClient client(server.port);
  client.send(text("HEAD", "/health", ""));
  const TestResponse head = client.read(true);
  CHECK(head.status == 200);
  CHECK(head.has("Content-Length: 5\r\n"));
  client.send(text("DELETE", "/health", ""));
  const TestResponse wrong = client.read();
  CHECK(wrong.status == 405);
  CHECK(wrong.has("Allow: GET, HEAD, OPTIONS\r\n"));
}
