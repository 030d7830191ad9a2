#include "net/listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "test_client.h"
#include "test_server.h"

using namespace heddle;
using namespace heddle::net;

TEST_CASE("port 0 reports the port that was chosen") {
  asio::io_context loop;
  const auto listener = Listener::open(loop, "127.0.0.1", 0);
  REQUIRE(listener.has_value());
  CHECK((*listener)->port() != 0);
  CHECK(describe_endpoint((*listener)->local()) == "127.0.0.1:" + std::to_string((*listener)->port()));
}

TEST_CASE("a taken port is one line that names the address") {
  asio::io_context loop;
  const auto first = Listener::open(loop, "127.0.0.1", 0);
  REQUIRE(first.has_value());
  const uint16_t port = (*first)->port();
  const auto second = Listener::open(loop, "127.0.0.1", port);
  REQUIRE(!second.has_value());
  CHECK(second.error().message == "cannot listen on 127.0.0.1:" + std::to_string(port) +
                                      ": the port is taken; choose another with --port, or --port 0 for a free one");
}

TEST_CASE("a port is free again as soon as its server has stopped, served connections or not") {
  uint16_t port = 0;
  {
    TestServer server;
    port = server.port;
    TestClient client(port);
    client.get("/hello", "Connection: close\r\n");  // the server closes first, so TIME_WAIT is on its side
    CHECK(client.read().status == 200);
  }
  asio::io_context loop;
  CHECK(Listener::open(loop, "127.0.0.1", port).has_value());
}

TEST_CASE("hosts are IPv4, IPv6 with or without brackets, names, or nothing") {
  asio::io_context loop;
  for (const char* host : {"127.0.0.1", "::1", "[::1]", "::", "0.0.0.0", "", "localhost"}) {
    CAPTURE(host);
    const auto listener = Listener::open(loop, host, 0);
    if (!listener) CAPTURE(listener.error().message);
    CHECK(listener.has_value());
  }
  const auto bad = Listener::open(loop, "no.such.host.invalid", 0);
  REQUIRE(!bad.has_value());
  CHECK(bad.error().message.starts_with("--host no.such.host.invalid: "));
  const auto foreign = Listener::open(loop, "192.0.2.1", 0);
  REQUIRE(!foreign.has_value());
  CHECK(foreign.error().message.starts_with("cannot listen on 192.0.2.1:0: "));
}

TEST_CASE("running out of descriptors refuses newcomers, keeps the others, and does not end the listener") {
  TestServer server;
  TestClient before(server.port), during(server.port);
  before.get("/hello");
  CHECK(before.read().status == 200);
  during.get("/hello");
  CHECK(during.read().status == 200);

  // The client's sockets are made while there is room; then the process is filled up to its limit, so that a connect()
  // gets one and the accept() none.
  const int kept = ::socket(AF_INET, SOCK_STREAM, 0);
  const int kept_later = ::socket(AF_INET, SOCK_STREAM, 0);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit lowered = limit;
  lowered.rlim_cur = static_cast<rlim_t>(kept_later) + 20;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &lowered) == 0);
  std::vector<int> filling;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) filling.push_back(fd);

  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(kept, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(eventually([&] { return server.counters().refused >= 1; }));
  char answer[64] = {};
  CHECK(::recv(kept, answer, 12, MSG_WAITALL) == 12);
  CHECK(std::string_view(answer) == "HTTP/1.1 503");
  during.get("/hello");
  CHECK(during.read().status == 200);

  for (const int fd : filling) ::close(fd);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  ::close(kept);
  ::close(kept_later);
  TestClient after(server.port);
  after.get("/hello");
  CHECK(after.read().status == 200);
}
