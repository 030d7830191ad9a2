#include "net/server.h"

#include <string_view>
#include <utility>

#include "base/log.h"

namespace heddle::net {

Server::Server(asio::io_context& loop, ServerOptions options, api::Handler& handler)
    : context_(loop, std::move(options), handler), sweep_timer_(loop.get_executor()) {}

Server::~Server() = default;  // the scope refuses if stop() was forgotten

Result<void> Server::listen(const std::string& host, uint16_t port) {
  auto listener = Listener::open(context_.loop, host, port);
  if (!listener) return tl::unexpected(listener.error());
  listeners_.push_back(std::move(*listener));
  context_.scope.spawn(listeners_.back()->run([this](TcpSocket socket) { accept(std::move(socket)); }));
  if (!std::exchange(sweeping_, true)) context_.scope.spawn(sweep_loop(this));
  return {};
}

uint16_t Server::port() const { return listeners_.empty() ? 0 : listeners_.front()->port(); }

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> out;
  for (const auto& listener : listeners_) out.push_back(describe_endpoint(listener->local()));
  return out;
}

void Server::accept(TcpSocket socket) {
  auto connection = make_tcp_connection(std::move(socket), context_.options.tcp);
  if (context_.connections.size() >= context_.options.max_connections) {
    ++context_.counters.refused;
    constexpr std::string_view answer =
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    connection->try_write(answer);
    connection->close();
    return;
  }
  // The sweep sleeps while there is nobody to watch.
  if (context_.connections.empty()) sweep_timer_.cancel();
  auto client = std::make_shared<HttpConnection>(context_, std::move(connection));
  context_.scope.spawn(HttpConnection::serve(std::move(client)));
}

Task<> Server::sweep_loop(Server* self) {
  while (!self->ended_) {
    if (self->context_.connections.empty()) {
      self->sweep_timer_.expires_at(Timer::time_point::max());
    } else {
      self->sweep_timer_.expires_after(self->context_.options.sweep);
    }
    auto [error] = co_await self->sweep_timer_.async_wait(as_values);
    if (error) continue;  // cancelled: a first connection, or the end
    const MonotonicTime now = Monotonic::now();
    // Nothing that a sweep does removes a connection at once: serve() does, when the loop comes to it.
    for (HttpConnection* connection : self->context_.connections) connection->sweep(now);
  }
}

void Server::begin_stop() {
  if (std::exchange(context_.stopping, true)) return;
  for (const auto& listener : listeners_) listener->close();
  for (HttpConnection* connection : context_.connections) connection->stop_when_idle();
}

void Server::cut_all() {
  begin_stop();
  for (HttpConnection* connection : context_.connections) connection->cut(api::Gone::shutdown);
}

Task<> Server::stop(MonotonicTime deadline) {
  begin_stop();
  while (!context_.connections.empty() && Monotonic::now() < deadline) {
    context_.drained.expires_at(deadline);
    auto [error] = co_await context_.drained.async_wait(as_values);
    (void)error;  // the loop's condition decides
  }
  if (!context_.connections.empty()) {
    log::warn("stopping with {} requests under way", context_.connections.size());
    cut_all();
  }
  ended_ = true;
  sweep_timer_.cancel();
  co_await context_.scope.join();
}

ServerCounters Server::counters() const {
  ServerCounters counters = context_.counters;
  counters.open = context_.connections.size();
  for (const auto& listener : listeners_) counters.refused += listener->refused_without_descriptor();
  return counters;
}

}  // namespace heddle::net
