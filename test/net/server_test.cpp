// The server over real sockets on the loopback interface: what a client may send, and what it gets.
#include "test_server.h"

#include "test_client.h"

using namespace heddle;
using namespace heddle::net;
using std::chrono::milliseconds;

TEST_CASE("a connection is kept for far more than a hundred requests") {
  TestServer server;
  TestClient client(server.port);
  for (int i = 0; i < 300; ++i) {
    client.get("/hello");
    const TestResponse response = client.read();
    REQUIRE(response.status == 200);
    REQUIRE(response.body == "hello");
    REQUIRE(!response.has("Connection: close"));
  }
  CHECK(server.counters().accepted == 1);
  CHECK(server.counters().requests == 300);
}

TEST_CASE("pipelined requests are answered in order, even when the first takes its time") {
  TestServer server;
  TestClient client(server.port);
  client.send(
      "GET /first HTTP/1.1\r\nHost: t\r\n\r\nGET /hello HTTP/1.1\r\nHost: t\r\n\r\nGET /events HTTP/1.1\r\nHost: "
      "t\r\n\r\n");
  const auto held = server.wait_held(0);
  CHECK(server.on_loop([&] { return server.handler.n_handled; }) == 1);
  CHECK(!client.has_bytes_now());
  server.on_loop([&] { held->sink->reply({200, "text/plain", "first", {}}); });
  CHECK(client.read().body == "first");
  CHECK(client.read().body == "hello");
  CHECK(client.read().body == "data: 1\n\ndata: 2\n\n");
}

TEST_CASE("a thousand pipelined requests in one piece are all answered") {
  TestServer server;
  TestClient client(server.port);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "GET /hello HTTP/1.1\r\nHost: t\r\n\r\n";
  std::thread sender([&] { client.send(many); });
  int n = 0;
  while (n < 1000 && client.read().status == 200) ++n;
  sender.join();
  CHECK(n == 1000);
}

TEST_CASE("more pipelined requests than are kept are all answered once the first one is") {
  TestServer server;
  TestClient client(server.port);
  client.get("/first");
  const auto held = server.wait_held(0);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "GET /hello HTTP/1.1\r\nHost: t\r\n\r\n";
  REQUIRE(many.size() > 2 * 64 * 1024);
  std::thread sender([&] { client.send(many); });
  CHECK(eventually([&] { return server.counters().bytes_in >= 64 * 1024; }));
  server.on_loop([&] { held->sink->reply({200, "text/plain", "first", {}}); });
  CHECK(client.read().body == "first");
  int n = 0;
  while (n < 5000 && client.read().status == 200) ++n;
  sender.join();
  CHECK(n == 5000);
}

TEST_CASE("bodies come in whole: with a length, chunked, large, and after 100-continue") {
  TestServer server;
  TestClient client(server.port);
  client.post("/echo", "abc");
  CHECK(client.read().body == "abc");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: "
      "1\r\n\r\n");
  CHECK(client.read().body == "abcde");
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(client.read_head().status == 100);
  client.send("hi");
  CHECK(client.read().body == "hi");
  const std::string large(5'000'000, 'y');
  std::thread sender([&] { client.post("/echo", large); });
  const TestResponse response = client.read();
  sender.join();
  CHECK(response.body == large);
}

TEST_CASE("HEAD gives GET's head and no body, for a stream too") {
  TestServer server;
  TestClient client(server.port);
  client.send("HEAD /hello HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.read(true).has("Content-Length: 5\r\n"));
  client.send("HEAD /events HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(client.read(true).has("text/event-stream"));
  client.get("/hello");
  CHECK(client.read().body == "hello");
}

TEST_CASE("204 has neither a body nor a length, and the connection goes on") {
  TestServer server;
  TestClient client(server.port);
  client.get("/nothing");
  const TestResponse response = client.read();
  CHECK(response.status == 204);
  CHECK(!response.has("Content-Length"));
  client.get("/hello");
  CHECK(client.read().body == "hello");
}

TEST_CASE("HTTP/1.0 gets whole answers and streams, each ended by the connection's end") {
  TestServer server;
  TestClient once(server.port);
  once.send("GET /hello HTTP/1.0\r\n\r\n");
  const TestResponse response = once.read();
  CHECK(response.body == "hello");
  CHECK(response.has("Connection: close"));
  CHECK(once.at_end());
  TestClient stream(server.port);
  stream.send("GET /events HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const TestResponse events = stream.read();
  CHECK(!events.has("Transfer-Encoding"));
  CHECK(events.has("Connection: close"));
  CHECK(events.body == "data: 1\n\ndata: 2\n\n");
}

TEST_CASE("Connection: close is answered, said and done") {
  TestServer server;
  TestClient client(server.port);
  client.get("/hello", "Connection: close\r\n");
  const TestResponse response = client.read();
  CHECK(response.body == "hello");
  CHECK(response.has("Connection: close\r\n"));
  CHECK(client.at_end());
}

TEST_CASE("a malformed request is 400 in JSON, and closes") {
  TestServer server;
  TestClient client(server.port);
  client.send("GET /hello HTTP/1.1\r\nHost : x\r\n\r\n");
  const TestResponse response = client.read();
  CHECK(response.status == 400);
  CHECK(response.has("Content-Type: application/json"));
  CHECK(response.has("Connection: close"));
  CHECK(response.body.starts_with("{\"error\":{\"message\":"));
  CHECK(client.at_end());
  CHECK(server.on_loop([&] { return server.handler.n_handled; }) == 0);
}

TEST_CASE("a body over the limit is 413, which reaches a client that is still sending") {
  ServerOptions options;
  options.http.body_bytes = 100'000;
  TestServer server(options);
  TestClient client(server.port);
  client.post("/echo", std::string(100'001, 'x'));
  const TestResponse response = client.read();
  CHECK(response.status == 413);
  CHECK(response.has("Connection: close"));
  CHECK(response.has("X-Admitted: yes"));  // what admission gave is on errors too
  CHECK(client.at_end());
  TestClient exact(server.port);
  exact.post("/echo", std::string(100'000, 'x'));
  CHECK(exact.read().body.size() == 100'000);
}

TEST_CASE("a client that goes on sending after its last answer is not reset while it does") {
  TestServer server;
  TestClient client(server.port);
  client.send("POST /refused HTTP/1.1\r\nHost: t\r\nContent-Length: 600000\r\n\r\n");
  CHECK(client.read().status == 401);
  const std::string piece(1000, 'x');
  bool sent = true;
  for (int i = 0; i < 600; ++i) sent = client.send(piece) && sent;
  CHECK(sent);
  // Its bytes are taken and thrown away, not left to fill the kernel.
  CHECK(eventually([&] { return server.counters().bytes_in >= 600'000; }));
  client.shutdown_write();
  CHECK(client.at_end());
  CHECK(server.wait_open(0));
}

TEST_CASE("a refused request is answered before its body, and the connection goes on after a small one") {
  TestServer server;
  TestClient client(server.port);
  client.send("POST /refused HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n");
  CHECK(client.read().status == 401);
  client.send("hello");
  client.get("/hello");
  CHECK(client.read().body == "hello");
  client.send("POST /refused HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  const TestResponse response = client.read();
  CHECK(response.status == 401);
  CHECK(response.has("Connection: close"));
  CHECK(client.at_end());
}

TEST_CASE("a handler that throws, or gives no answer, costs its own request a 500 and nothing else") {
  TestServer server;
  TestClient client(server.port);
  for (const char* path : {"/throw", "/throw-early", "/drop", "/hello"}) {
    CAPTURE(path);
    client.get(path);
    CHECK(client.read().status == (std::string_view(path) == "/hello" ? 200 : 500));
  }
  client.get("/later");
  server.wait_held(0);
  server.on_loop([&] { server.handler.held.clear(); });
  CHECK(client.read().status == 500);
  CHECK(server.on_loop([&] { return server.log.size(); }) == 5);
}

TEST_CASE("a stream that its handler drops is cut, so that its reader sees no orderly end") {
  TestServer server;
  TestClient client(server.port);
  client.get("/held");
  const auto held = server.wait_held(0);
  server.on_loop([&] {
    held->sink->start_stream(200, "text/plain");
    held->sink->write("part");
    held->sink.reset();
  });
  CHECK(client.read_head().status == 200);
  const std::string rest = client.read_to_end();
  CHECK(rest == "4\r\npart\r\n");
}

TEST_CASE("a request's id is the client's own or a new one, and comes back") {
  TestServer server;
  TestClient client(server.port);
  client.get("/hello", "X-Request-Id: abc\r\n");
  CHECK(client.read().has("X-Request-Id: abc\r\n"));
  client.get("/hello");
  const std::string first = client.read().head;
  client.get("/hello");
  const std::string second = client.read().head;
  const auto id = [](const std::string& head) { return head.substr(head.find("X-Request-Id: ") + 14, 32); };
  CHECK(id(first).find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(id(first) != id(second));
}

TEST_CASE("the access log has one record a request, with what it cost") {
  TestServer server;
  TestClient client(server.port);
  client.post("/echo", "12345");
  client.read();
  client.get("/held");
  const auto held = server.wait_held(0);
  server.on_loop([&] {
    held->sink->start_stream(200, api::sse_content_type);
    held->sink->write("data: x\n\n");
    held->sink->annotate("generated=1");
    held->sink->annotate("finish=stop");
    held->sink->end();
  });
  client.read();
  client.get("/gone");
  server.wait_held(1);
  client.reset();
  REQUIRE(server.wait_open(0));
  const auto log = server.on_loop([&] { return server.log; });
  REQUIRE(log.size() == 3);
  CHECK(log[0].method == "POST");
  CHECK(log[0].path == "/echo");
  CHECK(log[0].status == 200);
  CHECK(log[0].bytes_in == 5);
  CHECK(log[0].bytes_out == 5);
  CHECK(!log[0].gone);
  CHECK(log[0].peer.starts_with("127.0.0.1:"));
  CHECK(log[0].seconds >= 0);
  CHECK(log[1].bytes_out == 9);
  CHECK(log[1].notes == "generated=1 finish=stop");
  CHECK(log[2].status == 0);
  CHECK(log[2].gone == api::Gone::disconnected);
}

TEST_CASE("one connection more than the limit is told so, and served again when another has left") {
  ServerOptions options;
  options.max_connections = 2;
  TestServer server(options);
  TestClient first(server.port), second(server.port);
  first.get("/hello");
  second.get("/hello");
  CHECK(first.read().status == 200);
  CHECK(second.read().status == 200);
  TestClient third(server.port);
  const TestResponse refused = third.read();
  CHECK(refused.status == 503);
  CHECK(refused.has("Retry-After: 1"));
  CHECK(server.counters().refused == 1);
  first.close();
  REQUIRE(server.wait_open(1));
  TestClient fourth(server.port);
  fourth.get("/hello");
  CHECK(fourth.read().status == 200);
}
