#pragma once
// A listening TCP socket and its accept loop. Owned by the Server; loop thread only. open() fails with one line that
// names the address; after that nothing ends the loop but close(): running out of descriptors costs the newcomer its
// connection (a spare descriptor is freed to take and refuse it) and a pause of 50 ms, no more.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/asio.h"
#include "net/tcp_connection.h"

namespace heddle::net {

class Listener {
 public:
  using OnConnection = std::function<void(TcpSocket)>;

  // `host`: an IPv4 or IPv6 address, with or without brackets, or a name; empty means every IPv4 address. "::" takes
  // IPv4 too. `port` 0: the kernel chooses.
  static Result<std::unique_ptr<Listener>> open(asio::io_context& loop, const std::string& host, uint16_t port);

  virtual ~Listener() = default;
  virtual asio::ip::tcp::endpoint local() const = 0;
  uint16_t port() const { return local().port(); }
  virtual Task<> run(OnConnection on_connection) = 0;  // until close()
  virtual void close() = 0;
  virtual uint64_t refused_without_descriptor() const = 0;
};

}  // namespace heddle::net
