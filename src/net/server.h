#pragma once
// The HTTP server: listeners, the connections they bring, the sweep that enforces their deadlines, and the stop in two
// phases. Owned by app; loop thread only. The handler must outlive it. Every fault of one client stays that client's.
//
// Stop: begin_stop() takes no new connection and closes the idle ones; requests under way go on, each the last of its
// connection. At the deadline, or when cut_all() is called, what remains is cut with Gone::shutdown. stop() does all of
// it and returns when no coroutine is left; it must have returned before the server is destroyed.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/http_connection.h"
#include "net/listener.h"

namespace heddle::net {

class Server {
 public:
  Server(asio::io_context& loop, ServerOptions options, api::Handler& handler);
  ~Server();

  // Listens and serves from now on; may be called again for another address. Fails with one line for a person.
  Result<void> listen(const std::string& host, uint16_t port);
  uint16_t port() const;                       // of the first listener: the one chosen when 0 was asked for
  std::vector<std::string> addresses() const;  // "127.0.0.1:8000"

  void begin_stop();
  Task<> stop(MonotonicTime deadline);
  void cut_all();

  ServerCounters counters() const;

 private:
  static Task<> sweep_loop(Server* self);
  void accept(TcpSocket socket);

  ServerContext context_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  Timer sweep_timer_;
  bool sweeping_ = false;  // sweep_loop was started
  bool ended_ = false;     // ... and is to return
};

}  // namespace heddle::net
