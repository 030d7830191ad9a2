// Stopping in two phases: idle connections at once, running requests until the deadline, then nothing is left.
#include "test_client.h"
#include "test_server.h"

using namespace heddle;
using namespace heddle::net;
using std::chrono::minutes;

TEST_CASE("an idle server, and one with idle connections only, stops at once") {
  TestServer quiet;
  quiet.stop(Monotonic::now() + minutes(10));
  quiet.join();

  TestServer server;
  TestClient fresh(server.port), used(server.port);
  used.get("/hello");
  CHECK(used.read().status == 200);
  REQUIRE(server.wait_open(2));
  server.stop(Monotonic::now() + minutes(10));
  server.join();
  CHECK(fresh.at_end());
  CHECK(used.at_end());
}

TEST_CASE("running requests finish within the deadline, each the last of its connection; newcomers are turned away") {
  TestServer server;
  TestClient stream(server.port), plain(server.port);
  stream.get("/stream");
  const auto first = server.wait_held(0);
  plain.get("/plain");
  const auto second = server.wait_held(1);
  server.on_loop([&] { first->sink->start_stream(200, api::sse_content_type); });
  server.stop(Monotonic::now() + minutes(10));
  TestClient late(server.port);
  CHECK(!late.connected());
  server.on_loop([&] {
    first->sink->write("data: last\n\n");
    first->sink->end();
  });
  CHECK(stream.read().body == "data: last\n\n");
  CHECK(stream.at_end());
  server.on_loop([&] { second->sink->reply({200, "text/plain", "done", {}}); });
  const TestResponse response = plain.read();
  CHECK(response.body == "done");
  CHECK(response.has("Connection: close\r\n"));
  CHECK(plain.at_end());
  server.join();
}

TEST_CASE("at the deadline what still runs is cut, and its handler knows why") {
  TestServer server;
  TestClient stream(server.port), plain(server.port);
  stream.get("/stream");
  const auto first = server.wait_held(0);
  plain.get("/plain");
  const auto second = server.wait_held(1);
  server.on_loop([&] { first->sink->start_stream(200, api::sse_content_type); });
  server.stop(Monotonic::now() + std::chrono::milliseconds(50));
  server.join();
  CHECK(first->gone == api::Gone::shutdown);
  CHECK(second->gone == api::Gone::shutdown);
  CHECK(stream.read_head().status == 200);
  CHECK(stream.at_end());
  CHECK(plain.at_end());
  REQUIRE(server.log.size() == 2);
  CHECK(server.log[0].gone == api::Gone::shutdown);
}

TEST_CASE("a second order to stop ends the wait at once") {
  TestServer server;
  TestClient client(server.port);
  client.get("/held");
  const auto held = server.wait_held(0);
  server.stop(Monotonic::now() + minutes(10));
  server.on_loop([&] { server.server->cut_all(); });
  server.join();
  CHECK(held->gone == api::Gone::shutdown);
}

TEST_CASE("a client that keeps half a request open does not hold the stop beyond its deadline") {
  TestServer server;
  TestClient client(server.port);
  client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhalf");
  REQUIRE(eventually([&] { return server.counters().requests == 1; }));
  server.stop(Monotonic::now() + std::chrono::milliseconds(50));
  server.join();
  CHECK(client.at_end());
}
