#include "net/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace heddle::net {
namespace {

using asio::ip::tcp;
using Acceptor = asio::basic_socket_acceptor<tcp, Executor>;

// The system's resolver blocks, which is fine before the server starts.
Result<std::vector<tcp::endpoint>> resolve(std::string host, uint16_t port) {
  if (host.empty()) return std::vector<tcp::endpoint>{{tcp::v4(), port}};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  ErrorCode error;
  const auto address = asio::ip::make_address(host, error);
  if (!error) return std::vector<tcp::endpoint>{{address, port}};

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
    return fail(fmt::format("--host {}: {}", host, ::gai_strerror(code)));
  }
  std::vector<tcp::endpoint> endpoints;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    tcp::endpoint endpoint;
    std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
    endpoint.resize(entry->ai_addrlen);
    endpoint.port(port);
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  if (endpoints.empty()) return fail(fmt::format("--host {}: has no IPv4 or IPv6 address", host));
  return endpoints;
}

ErrorCode listen_on(Acceptor& acceptor, const tcp::endpoint& endpoint) {
  ErrorCode error;
  if (acceptor.is_open()) acceptor.close(error);
  acceptor.open(endpoint.protocol(), error);
  if (error) return error;
  // SO_REUSEADDR, on Linux: bind despite connections in TIME_WAIT; a port that someone listens on stays taken.
  acceptor.set_option(Acceptor::reuse_address(true), error);
  if (error) return error;
  if (endpoint.address().is_v6()) {
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
    if (error) return error;
  }
  acceptor.bind(endpoint, error);
  if (error) return error;
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

class SpareDescriptor {
 public:
  SpareDescriptor() { take(); }
  ~SpareDescriptor() { release(); }
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;
  void take() {
    if (fd_ < 0) fd_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  void release() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

class TcpListener final : public Listener {
 public:
  explicit TcpListener(asio::io_context& loop) : acceptor(loop.get_executor()), pause_(loop.get_executor()) {}

  tcp::endpoint local() const override {
    ErrorCode error;
    return acceptor.local_endpoint(error);
  }

  Task<> run(OnConnection on_connection) override {
    while (acceptor.is_open()) {
      TcpSocket socket(acceptor.get_executor());
      auto [error] = co_await acceptor.async_accept(socket, as_values);
      if (!error) {
        on_connection(std::move(socket));
      } else if (error == asio::error::no_descriptors || error == ErrorCode(ENFILE, boost::system::system_category())) {
        refuse_one();
        pause_.expires_after(std::chrono::milliseconds(50));
        auto [paused] = co_await pause_.async_wait(as_values);
        if (paused) break;
      } else if (error == asio::error::operation_aborted) {
        break;
      } else if (error != asio::error::connection_aborted) {
        // ENOBUFS, ENOMEM, EPROTO, a firewall's EPERM: about that one connection or that moment, never about the
        // listener.
        report("accept", error);
        pause_.expires_after(std::chrono::milliseconds(50));
        auto [paused] = co_await pause_.async_wait(as_values);
        if (paused) break;
      }
    }
  }

  void close() override {
    ErrorCode error;
    acceptor.close(error);
    pause_.cancel();
  }

  uint64_t refused_without_descriptor() const override { return n_refused_; }

  Acceptor acceptor;

 private:
  void refuse_one() {
    spare_.release();
    // Straight to the kernel: this connection gets no coroutine.
    const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      ++n_refused_;
      constexpr std::string_view answer =
          "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
      (void)::send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      ::close(fd);
    }
    spare_.take();
    report("accept", asio::error::no_descriptors);
  }

  void report(std::string_view what, const ErrorCode& error) {
    const MonotonicTime now = Monotonic::now();
    if (now < next_report_) return;
    next_report_ = now + std::chrono::seconds(5);
    log::warn("{}: {} ({} connections refused for want of a descriptor so far)", what, error.message(), n_refused_);
  }

  Timer pause_;
  SpareDescriptor spare_;
  MonotonicTime next_report_{};
  uint64_t n_refused_ = 0;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& loop, const std::string& host, uint16_t port) {
  const auto endpoints = resolve(host, port);
  if (!endpoints) return tl::unexpected(endpoints.error());
  auto listener = std::make_unique<TcpListener>(loop);
  std::string failures;
  for (const tcp::endpoint& endpoint : *endpoints) {
    const ErrorCode error = listen_on(listener->acceptor, endpoint);
    if (!error) return std::unique_ptr<Listener>(std::move(listener));
    const std::string reason =
        error == asio::error::address_in_use
            ? std::string("the port is taken; choose another with --port, or --port 0 for a free one")
            : error.message();
    failures +=
        fmt::format("{}cannot listen on {}: {}", failures.empty() ? "" : "; ", describe_endpoint(endpoint), reason);
  }
  return fail(failures);
}

}  // namespace heddle::net
