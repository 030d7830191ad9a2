#pragma once
// TCP as a Connection. The socket options bound what a peer can cost: no delay for small events, keep-alive and a user
// timeout for peers that vanish without a word, a small send buffer so that a slow reader's backlog shows here and not
// in the kernel.
#include <boost/asio/ip/tcp.hpp>

#include "net/connection.h"

namespace heddle::net {

using TcpSocket = asio::basic_stream_socket<asio::ip::tcp, Executor>;

struct TcpOptions {
  int send_buffer_bytes = 128 * 1024;  // SO_SNDBUF; the kernel doubles it for its own book-keeping
  int user_timeout_ms = 30'000;        // TCP_USER_TIMEOUT: unacknowledged data for so long breaks the connection
};

std::unique_ptr<Connection> make_tcp_connection(TcpSocket socket, const TcpOptions& options);
std::string describe_endpoint(const asio::ip::tcp::endpoint& endpoint);  // "127.0.0.1:80", "[::1]:80"

}  // namespace heddle::net
