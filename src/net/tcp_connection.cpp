#include "net/tcp_connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <cerrno>
#include <utility>

namespace heddle::net {
namespace {

IoStatus status_of(const ErrorCode& error) {
  if (!error) return IoStatus::ok;
  if (error == asio::error::eof) return IoStatus::end;
  if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) return IoStatus::cancelled;
  return IoStatus::failed;
}

class TcpConnection final : public Connection {
 public:
  TcpConnection(TcpSocket socket, const TcpOptions& options) : socket_(std::move(socket)) {
    ErrorCode error;
    const auto remote = socket_.remote_endpoint(error);
    peer_ = error ? "unknown" : describe_endpoint(remote);
    // A peer that is gone already makes these fail; the first read will say so.
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, options.user_timeout_ms);
    set(SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  }

  Task<IoResult> read_some(std::span<char> room) override {
    const asio::mutable_buffer buffer(room.data(), room.size());
    auto [error, n] = co_await socket_.async_read_some(buffer, as_values);
    co_return IoResult{status_of(error), n};
  }

  Task<IoResult> watch() override {
    auto token = asio::bind_cancellation_slot(watch_.slot(), as_values);
    auto [error] = co_await socket_.async_wait(TcpSocket::wait_error, token);
    // Readiness without an error is urgent data, which no HTTP client sends: it would spin here, so it counts as
    // broken.
    co_return IoResult{error ? status_of(error) : IoStatus::failed, 0};
  }

  void stop_watching() override { watch_.emit(asio::cancellation_type::all); }

  IoResult try_write(std::string_view bytes) override {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n =
          ::send(socket_.native_handle(), bytes.data() + done, bytes.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) {
        done += static_cast<size_t>(n);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return {IoStatus::would_block, done};
      } else if (errno != EINTR) {
        return {errno == EBADF ? IoStatus::cancelled : IoStatus::failed, done};
      }
    }
    return {IoStatus::ok, done};
  }

  Task<IoResult> wait_writable() override {
    auto [error] = co_await socket_.async_wait(TcpSocket::wait_write, as_values);
    co_return IoResult{status_of(error), 0};
  }

  void shutdown_write() override {
    ErrorCode error;
    socket_.shutdown(TcpSocket::shutdown_send, error);  // fails when the peer is gone, which the next read reports
  }

  void close() override {
    ErrorCode error;
    socket_.close(error);  // the descriptor is released in any case
  }

  bool is_open() const override { return socket_.is_open(); }
  std::string peer() const override { return peer_; }

 private:
  void set(int level, int option, int value) {
    (void)::setsockopt(socket_.native_handle(), level, option, &value, sizeof value);
  }

  TcpSocket socket_;
  asio::cancellation_signal watch_;
  std::string peer_;
};

}  // namespace

std::string describe_endpoint(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

std::unique_ptr<Connection> make_tcp_connection(TcpSocket socket, const TcpOptions& options) {
  return std::make_unique<TcpConnection>(std::move(socket), options);
}

}  // namespace heddle::net
