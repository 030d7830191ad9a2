#include "app/stream_client.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace heddle::app {
namespace {

// One answer as it comes: counts its events, keeps its first and its last bytes.
class Answer {
 public:
  explicit Answer(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }

  // An event ends with an empty line; heads have CR LF and chunks' frames too, so "\n\n" is nothing else.
  uint64_t take(std::string_view bytes) {
    uint64_t n_events = 0;
    if (head_.size() < 12) head_ += bytes.substr(0, 12 - head_.size());
    size_t at = 0;
    for (;;) {
      if (after_line_ && at < bytes.size()) {
        n_events += bytes[at] == '\n';
        after_line_ = false;
      }
      const size_t line_end = bytes.find('\n', at);
      if (line_end == std::string_view::npos) break;
      after_line_ = true;
      at = line_end + 1;
      if (at < bytes.size() && bytes[at] == '\n') {
        ++n_events;
        ++at;
        after_line_ = false;
      }
    }
    tail_ += bytes.substr(bytes.size() > 5 ? bytes.size() - 5 : 0);
    if (tail_.size() > 5) tail_.erase(0, tail_.size() - 5);
    return n_events;
  }

  std::string problem(ClientOrder::Kind kind) const {
    if (kind == ClientOrder::Kind::raw) return {};
    if (head_ != "HTTP/1.1 200") return fmt::format("an answer began with '{}'", head_);
    const bool whole = kind == ClientOrder::Kind::streamed ? tail_ == "0\r\n\r\n" : tail_.ends_with('}');
    return whole ? std::string() : "an answer was cut short";
  }

 private:
  int descriptor_;
  bool after_line_ = false;  // the last byte was a line's end, and not yet an event's
  std::string head_, tail_;
};

std::string request_text(const ClientOrder& order, uint32_t number) {
  std::string ids;
  for (uint32_t i = 0; i < order.n_prompt; ++i)
    ids += fmt::format("{}{}", i > 0 ? "," : "", 300 + (number * 131 + i * 17) % 4000);
  const std::string body =
      fmt::format(R"({{"prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,"stream":{}}})", ids,
                  order.max_tokens, order.kind == ClientOrder::Kind::streamed);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
}

class Client {
 public:
  explicit Client(const ClientOrder& order) : order_(order), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Client() {
    for (const Answer& answer : answers_) ::close(answer.descriptor());
    ::close(epoll_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  ClientReport run() {
    std::string problem = open_all();
    if (problem.empty()) problem = read_all();
    for (const Answer& answer : answers_)
      if (problem.empty()) problem = answer.problem(order_.kind);
    std::strncpy(report_.error.data(), problem.c_str(), report_.error.size() - 1);
    return report_;
  }

 private:
  static std::string failure(const char* call) { return fmt::format("{}: {}", call, std::strerror(errno)); }

  std::string open_all() {
    for (uint32_t i = 0; i < order_.n_connections; ++i) {
      const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (descriptor < 0) return failure("socket");
      answers_.emplace_back(descriptor);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(order_.port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return failure("connect");
    }
    for (uint32_t i = 0; i < order_.n_connections; ++i) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = i;
      if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, answers_[i].descriptor(), &event) != 0) return failure("epoll_ctl");
      if (order_.kind == ClientOrder::Kind::raw) continue;
      const std::string request = request_text(order_, i);
      if (::send(answers_[i].descriptor(), request.data(), request.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(request.size()))
        return failure("send");
    }
    return {};
  }

  std::string read_all() {
    std::vector<char> buffer(256 * 1024);
    std::array<epoll_event, 256> events{};
    MonotonicTime first{}, last{};
    for (uint32_t n_open = order_.n_connections; n_open > 0;) {
      const int n_ready = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      if (n_ready < 0 && errno != EINTR) return failure("epoll_wait");
      for (int i = 0; i < n_ready; ++i) {
        Answer& answer = answers_[events[static_cast<size_t>(i)].data.u32];
        const ssize_t n = ::recv(answer.descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return failure("recv");
        if (n == 0) {
          ::epoll_ctl(epoll_, EPOLL_CTL_DEL, answer.descriptor(), nullptr);
          --n_open;
          continue;
        }
        last = Monotonic::now();
        if (report_.n_reads++ == 0) first = last;
        report_.n_bytes += static_cast<uint64_t>(n);
        if (order_.kind != ClientOrder::Kind::raw)
          report_.n_events += answer.take({buffer.data(), static_cast<size_t>(n)});
      }
    }
    report_.seconds = seconds(last - first);
    return {};
  }

  const ClientOrder order_;
  const int epoll_;
  std::vector<Answer> answers_;
  ClientReport report_;
};

// Whole structures over a local stream: they are small, so they come in one piece or not at all. Waits with poll(),
// since whoever had the descriptor in between may have made it non-blocking.
template <class T>
bool read_whole(int descriptor, T& value) {
  pollfd ready{descriptor, POLLIN, 0};
  while (::poll(&ready, 1, -1) < 0 && errno == EINTR) {
  }
  return ::recv(descriptor, &value, sizeof value, 0) == static_cast<ssize_t>(sizeof value);
}
template <class T>
bool write_whole(int descriptor, const T& value) {
  return ::send(descriptor, &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

[[noreturn]] void serve_orders(int descriptor) {
  ClientOrder order;
  while (read_whole(descriptor, order))
    if (!write_whole(descriptor, Client(order).run())) break;
  ::_exit(0);  // the parent's exit handlers are not this process's to run
}

}  // namespace

Result<StreamClient> StreamClient::start() {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return fail(fmt::format("socketpair: {}", std::strerror(errno)));
  const pid_t process = ::fork();
  if (process < 0) {
    const int error = errno;
    ::close(pair[0]);
    ::close(pair[1]);
    return fail(fmt::format("fork: {}", std::strerror(error)));
  }
  if (process == 0) {
    ::close(pair[0]);
    serve_orders(pair[1]);
  }
  ::close(pair[1]);
  return StreamClient(process, pair[0]);
}

StreamClient::StreamClient(StreamClient&& other) noexcept
    : process_(std::exchange(other.process_, -1)), descriptor_(std::exchange(other.descriptor_, -1)) {}

StreamClient::~StreamClient() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<void> StreamClient::send(const ClientOrder& order) {
  if (!write_whole(descriptor_, order)) return fail("the client process has ended");
  return {};
}

Result<ClientReport> StreamClient::receive() {
  ClientReport report;
  if (!read_whole(descriptor_, report)) return fail("the client process has ended");
  return checked(report);
}

Result<ClientReport> checked(const ClientReport& report) {
  if (report.error[0] != '\0') return fail(fmt::format("the client: {}", report.error.data()));
  return report;
}

}  // namespace heddle::app
