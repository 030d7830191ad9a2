// Clients that leave, stall or dawdle: who notices, when, and what it costs the others.
#include <sys/resource.h>

#include "test_client.h"
#include "test_server.h"

using namespace heddle;
using namespace heddle::net;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// Writes until the sink says `flow`, or gives up.
bool write_until(TestServer& server, const std::shared_ptr<Held>& held, api::Flow flow, const std::string& event) {
  return eventually([&] { return server.on_loop([&] { return held->sink->write(event) == flow; }); });
}

const std::string event = "data: " + std::string(4000, 'x') + "\n\n";

}  // namespace

TEST_CASE("a client that goes before the answer is noticed at once, by an end or by a reset") {
  TestServer server;
  for (const bool reset : {false, true}) {
    CAPTURE(reset);
    TestClient client(server.port);
    client.get("/held");
    const auto held = server.wait_held(reset ? 1 : 0);
    if (reset) {
      client.reset();
    } else {
      client.close();
    }
    CHECK(server.wait_gone(held) == api::Gone::disconnected);
    server.on_loop([&] {
      CHECK(held->sink->closed());
      held->sink->reply({200, "text/plain", "nobody reads this", {}});  // harmless
      CHECK(held->sink->write("nor this") == api::Flow::gone);
      held->sink->end();
    });
    CHECK(server.on_loop([&] { return held->n_gone; }) == 1);
  }
  CHECK(server.wait_open(0));
}

TEST_CASE("half a close ends a request without an answer, and not a stream") {
  TestServer server;
  TestClient plain(server.port);
  plain.get("/plain");
  const auto first = server.wait_held(0);
  plain.shutdown_write();
  CHECK(server.wait_gone(first) == api::Gone::disconnected);

  TestClient stream(server.port);
  stream.get("/stream");
  const auto second = server.wait_held(1);
  server.on_loop([&] { second->sink->start_stream(200, api::sse_content_type); });
  CHECK(stream.read_head().status == 200);
  const uint64_t before = server.counters().bytes_in;
  stream.shutdown_write();
  for (int i = 0; i < 10; ++i) {
    CHECK(server.on_loop([&] { return second->sink->write("data: more\n\n"); }) == api::Flow::open);
    CHECK(stream.read_chunk() == "data: more\n\n");
  }
  CHECK(server.counters().bytes_in == before);
  server.on_loop([&] { second->sink->end(); });
  CHECK(stream.read_chunk().empty());
  CHECK(stream.at_end());
  CHECK(server.on_loop([&] { return second->n_gone; }) == 0);
}

TEST_CASE("a request that comes to its turn after its client has sent the end is dropped too") {
  TestServer server;
  TestClient client(server.port);
  client.get("/stream");
  const auto first = server.wait_held(0);
  server.on_loop([&] { first->sink->start_stream(200, "text/plain"); });
  client.get("/hello");
  client.get("/held");
  client.shutdown_write();
  server.on_loop([&] { first->sink->end(); });
  CHECK(client.read().status == 200);
  CHECK(client.read().body == "hello");  // answered on the spot
  const auto second = server.wait_held(1);
  CHECK(server.wait_gone(second) == api::Gone::disconnected);
  CHECK(client.at_end());
}

TEST_CASE("a reset in mid-stream is noticed without a write, after half a close too") {
  TestServer server;
  for (const bool half_closed : {false, true}) {
    CAPTURE(half_closed);
    TestClient client(server.port);
    client.get("/stream");
    const auto held = server.wait_held(half_closed ? 1 : 0);
    server.on_loop([&] { held->sink->start_stream(200, api::sse_content_type); });
    client.read_head();
    if (half_closed) client.shutdown_write();
    client.reset();
    CHECK(server.wait_gone(held) == api::Gone::disconnected);
  }
}

TEST_CASE("a client that closes in mid-stream is noticed by the write that fails") {
  TestServer server;
  TestClient client(server.port);
  client.get("/stream");
  const auto held = server.wait_held(0);
  server.on_loop([&] { held->sink->start_stream(200, api::sse_content_type); });
  client.read_head();
  client.close();
  CHECK(write_until(server, held, api::Flow::gone, "data: x\n\n"));
  CHECK(server.wait_gone(held) == api::Gone::disconnected);
  CHECK(server.wait_open(0));
}

TEST_CASE("a callback set after the client has gone is still called") {
  TestServer server;
  TestClient client(server.port);
  client.get("/held");
  const auto held = server.wait_held(0);
  client.reset();
  server.wait_gone(held);
  auto late = std::make_shared<std::optional<api::Gone>>();
  server.on_loop([&] { held->sink->on_gone([late](api::Gone reason) { *late = reason; }); });
  CHECK(eventually([&] { return server.on_loop([&] { return late->has_value(); }); }));
}

TEST_CASE("five hundred disconnects in a row leave nothing behind") {
  TestServer server;
  for (int i = 0; i < 500; ++i) {
    TestClient client(server.port);
    client.get(i % 2 == 0 ? "/held" : "/events");
    if (i % 3 == 0) client.reset();
  }
  CHECK(server.wait_open(0));
  TestClient client(server.port);
  client.get("/hello");
  CHECK(client.read().status == 200);
}

TEST_CASE("a flood of pipelined bytes is read up to its bound, and its sender's reset is still noticed") {
  TestServer server;
  TestClient client(server.port);
  client.get("/held");
  const auto held = server.wait_held(0);
  std::thread flood([&] { client.send(std::string(32'000'000, 'x')); });
  CHECK(eventually([&] { return server.counters().bytes_in >= 64 * 1024; }));
  // The watch, not the read, is pending now. Ending the answer makes the server parse the flood: a request line that is
  // too long.
  CHECK(server.counters().bytes_in < 128 * 1024);
  server.on_loop([&] { held->sink->reply({200, "text/plain", "done", {}}); });
  CHECK(client.read().body == "done");
  CHECK(client.read().status == 414);
  client.read_to_end();
  flood.join();

  TestClient other(server.port);
  other.get("/held");
  const auto second = server.wait_held(1);
  other.send(std::string(64 * 1024, 'x'));
  CHECK(eventually([&] { return server.counters().bytes_in >= 128 * 1024; }));
  other.reset();
  CHECK(server.wait_gone(second) == api::Gone::disconnected);
}

TEST_CASE("a slow reader is told apart by Flow, holds bounded memory, and delays nobody") {
  ServerOptions options;
  options.outbox_bytes = 50'000;
  TestServer server(options);
  TestClient slow(server.port, 4096);
  slow.get("/stream");
  const auto held = server.wait_held(0);
  server.on_loop([&] { held->sink->start_stream(200, api::sse_content_type); });
  REQUIRE(write_until(server, held, api::Flow::behind, event));
  CHECK(server.on_loop([&] { return held->sink->unsent_bytes(); }) > 0);

  TestClient quick(server.port);
  for (int i = 0; i < 50; ++i) {
    quick.get("/hello");
    CHECK(quick.read().body == "hello");
  }
  size_t most = 0;
  CHECK(eventually([&] {
    return server.on_loop([&] {
      const api::Flow flow = held->sink->write(event);
      most = std::max(most, held->sink->unsent_bytes());
      return flow == api::Flow::gone;
    });
  }));
  CHECK(most <= 50'000 + event.size() + 16);
  CHECK(server.wait_gone(held) == api::Gone::stalled);
  CHECK(server.counters().stalled == 1);
  CHECK(server.wait_open(1));
}

TEST_CASE("a reader that takes nothing for too long is cut, with little in its outbox too") {
  ServerOptions options;
  options.write = milliseconds(150);
  options.sweep = milliseconds(10);
  TestServer server(options);
  TestClient client(server.port, 4096);
  client.get("/stream");
  const auto held = server.wait_held(0);
  server.on_loop([&] { held->sink->start_stream(200, api::sse_content_type); });
  REQUIRE(write_until(server, held, api::Flow::behind, event));
  CHECK(server.wait_gone(held) == api::Gone::stalled);

  TestClient whole(server.port, 4096);
  whole.get("/large");
  CHECK(eventually([&] { return server.counters().stalled == 2; }));
}

TEST_CASE("a reader that catches up is told writable, and reads every byte in order") {
  TestServer server;
  TestClient client(server.port, 4096);
  client.get("/stream");
  const auto held = server.wait_held(0);
  server.on_loop([&] { held->sink->start_stream(200, "text/plain"); });
  client.read_head();
  int n = 0;
  const auto next = [&n] { return "event " + std::to_string(n++) + std::string(2000, '.') + "\n"; };
  std::string expected;
  for (int round = 1; round <= 3; ++round) {
    REQUIRE(eventually([&] {
      const std::string text = next();
      expected += text;
      return server.on_loop([&] { return held->sink->write(text) == api::Flow::behind; });
    }));
    std::string got;
    while (got.size() < expected.size()) got += client.read_chunk();
    CHECK(got == expected);
    expected.clear();
    CHECK(eventually([&] { return server.on_loop([&] { return held->n_writable == round; }); }));
  }
  server.on_loop([&] { held->sink->end(); });
  CHECK(client.read_chunk().empty());
}

TEST_CASE("an answer larger than any buffer arrives whole, whoever reads slowly") {
  TestServer server;
  TestClient client(server.port, 4096);
  client.get("/large");
  client.get("/hello");
  const TestResponse response = client.read();
  CHECK(response.body == std::string(8'000'000, 'x'));
  CHECK(client.read().body == "hello");
}

TEST_CASE("three hundred slow streams and a thousand idle connections delay nobody") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur < 3000) {
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &raised) == 0);
    REQUIRE(raised.rlim_cur >= 3000);
  }
  TestServer server;
  std::vector<TestClient> streams, idle;
  for (int i = 0; i < 300; ++i) {
    streams.emplace_back(server.port, 4096).get("/stream");
  }
  for (size_t i = 0; i < 300; ++i) server.wait_held(i);
  for (int i = 0; i < 1000; ++i) {
    idle.emplace_back(server.port).get("/hello");
    CHECK(idle.back().read().status == 200);
  }
  server.on_loop([&] {
    for (const auto& held : server.handler.held) held->sink->start_stream(200, api::sse_content_type);
  });
  CHECK(server.counters().open == 1300);
  std::vector<double> latencies;
  for (int round = 0; round < 20; ++round) {
    server.on_loop([&] {
      for (const auto& held : server.handler.held) held->sink->write(event);
    });
    const auto begin = std::chrono::steady_clock::now();
    idle[static_cast<size_t>(round)].get("/hello");
    CHECK(idle[static_cast<size_t>(round)].read().body == "hello");
    latencies.push_back(heddle::seconds(std::chrono::steady_clock::now() - begin));
  }
  std::ranges::sort(latencies);
  CHECK(latencies[latencies.size() / 2] < 0.1);
  for (TestClient& client : streams) CHECK(client.read_head().status == 200);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_CASE("requests that do not arrive in time are told 408, idle connections are closed without a word") {
  ServerOptions options;
  options.sweep = milliseconds(10);
  options.head = options.body = options.idle = milliseconds(100);
  TestServer server(options);
  TestClient idle(server.port), head(server.port), body(server.port), used(server.port);
  used.get("/hello");
  CHECK(used.read().status == 200);
  head.send("GET /hello HTTP/1.1\r\nHost:");
  body.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhalf");
  CHECK(head.read().status == 408);
  CHECK(head.at_end());
  CHECK(body.read().status == 408);
  CHECK(body.at_end());
  CHECK(idle.at_end());
  CHECK(used.at_end());
  CHECK(server.counters().timed_out == 2);
  CHECK(server.on_loop([&] { return server.handler.n_handled; }) == 1);  // the half-parsed ones never were
  CHECK(server.wait_open(0));
}

TEST_CASE("a request that waits for its answer has no deadline of the network's") {
  ServerOptions options;
  options.sweep = milliseconds(5);
  options.head = options.body = options.idle = options.write = milliseconds(20);
  TestServer server(options);
  TestClient client(server.port), other(server.port);
  client.get("/held");
  const auto held = server.wait_held(0);
  CHECK(other.at_end());  // the sweep has gone over both, and closed the idle one
  server.on_loop([&] { held->sink->start_stream(200, "text/plain"); });
  TestClient another(server.port);
  CHECK(another.at_end());
  server.on_loop([&] {
    held->sink->write("still here");
    held->sink->end();
  });
  CHECK(client.read().body == "still here");
}

TEST_CASE("a silent event stream gets comments, each a frame of its own, and other answers do not") {
  ServerOptions options;
  options.sweep = milliseconds(5);
  options.sse_keep_alive = milliseconds(20);
  TestServer server(options);
  TestClient events(server.port), plain(server.port);
  events.get("/events-held");
  const auto first = server.wait_held(0);
  plain.get("/plain-held");
  const auto second = server.wait_held(1);
  server.on_loop([&] {
    first->sink->start_stream(200, api::sse_content_type);
    second->sink->start_stream(200, "text/plain");
  });
  events.read_head();
  CHECK(events.read_chunk() == api::sse_keep_alive);
  CHECK(events.read_chunk() == api::sse_keep_alive);
  server.on_loop([&] {
    first->sink->write("data: x\n\n");
    first->sink->end();
    second->sink->end();
  });
  std::string chunk = events.read_chunk();
  while (chunk == api::sse_keep_alive) chunk = events.read_chunk();
  CHECK(chunk == "data: x\n\n");
  CHECK(plain.read().body.empty());
}
