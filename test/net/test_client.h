#pragma once
// A blocking HTTP client of a few lines, for the server's tests: it can do what real clients must not. Test thread
// only.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::net {

struct TestResponse {
  int status = 0;
  std::string head;  // with the status line and the empty line
  std::string body;  // chunked framing removed

  bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
};

class TestClient {
 public:
  // A small receive buffer makes a slow reader of anybody who does not read.
  explicit TestClient(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    REQUIRE(fd_ >= 0);
    const timeval patience{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { close(); }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), input_(std::move(other.input_)) {}
  TestClient& operator=(TestClient&&) = delete;

  bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void get(std::string_view path, std::string_view more_headers = "") {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more_headers) + "\r\n");
  }
  void post(std::string_view path, std::string_view body) {
    send("POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body));
  }

  // Text up to and with `mark`; what there is when the stream ends first.
  std::string read_until(std::string_view mark) {
    size_t at;
    while ((at = input_.find(mark)) == std::string::npos) {
      if (!fill()) return std::exchange(input_, {});
    }
    return take(at + mark.size());
  }
  std::string read_to_end() {
    while (fill()) {
    }
    return std::exchange(input_, {});
  }
  bool at_end() { return input_.empty() && !fill(); }

  TestResponse read_head() {
    TestResponse response;
    response.head = read_until("\r\n\r\n");
    if (response.head.size() > 12) response.status = std::stoi(response.head.substr(9, 3));
    return response;
  }
  // One chunk's data; empty for the last one, and at the end.
  std::string read_chunk() {
    const std::string line = read_until("\r\n");
    if (line.empty()) return {};
    const size_t size = std::stoul(line, nullptr, 16);
    while (input_.size() < size + 2 && fill()) {
    }
    std::string data = take(std::min(size, input_.size()));
    take(std::min<size_t>(2, input_.size()));
    return data;
  }
  TestResponse read(bool to_head_request = false) {
    TestResponse response = read_head();
    if (to_head_request || response.status == 204) return response;
    const size_t length_at = response.head.find("Content-Length: ");
    if (length_at != std::string::npos) {
      const size_t length = std::stoul(response.head.substr(length_at + 16));
      while (input_.size() < length && fill()) {
      }
      response.body = take(std::min(length, input_.size()));
    } else if (response.has("Transfer-Encoding: chunked")) {
      for (std::string chunk; !(chunk = read_chunk()).empty();) response.body += chunk;
    } else {
      response.body = read_to_end();
    }
    return response;
  }

  bool has_bytes_now() {
    pollfd entry{fd_, POLLIN, 0};
    return !input_.empty() || ::poll(&entry, 1, 0) > 0;
  }
  void shutdown_write() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {  // an RST instead of a FIN
    const linger at_once{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }

 private:
  bool fill() {
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    input_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  std::string take(size_t n) {
    std::string out = input_.substr(0, n);
    input_.erase(0, n);
    return out;
  }

  int fd_;
  bool connected_ = false;
  std::string input_;
};

}  // namespace heddle::net
