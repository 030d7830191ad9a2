// `heddle bench stream`: server-sent events over real sockets to a client in a process of its own. Without a model:
// events a second of one loop, against the bare rate of send() in the same run. With one: the server's CPU time per
// 1,000 tokens, streamed against not.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "app/commands.h"
#include "app/stream_server.h"
#include "app/terminal.h"

namespace heddle::app {
namespace {

constexpr uint32_t kPromptTokens = 32;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// ---- what the kernel can do

class Sockets {
 public:
  ~Sockets() {
    for (const int descriptor : all_) ::close(descriptor);
  }
  int add(int descriptor) {
    all_.push_back(descriptor);
    return descriptor;
  }

 private:
  std::vector<int> all_;
};

Error failed(const char* call) { return {fmt::format("{}: {}", call, std::strerror(errno))}; }

// The loop of the raw measurement: round after round, one send() of a chunk on each connection, with the options that
// the server's connections have.
Result<double> raw_send_rate(StreamClient& client, uint32_t n_connections, uint64_t n_sends, size_t chunk_bytes) {
  Sockets sockets;
  const int listener = sockets.add(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0) return tl::unexpected(failed("bind"));
  if (::listen(listener, static_cast<int>(n_connections)) != 0) return tl::unexpected(failed("listen"));
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return tl::unexpected(failed("getsockname"));
  Result<void> sent =
      client.send({.kind = ClientOrder::Kind::raw, .port = ntohs(address.sin_port), .n_connections = n_connections});
  if (!sent) return tl::unexpected(sent.error());
  std::vector<int> peers;
  const net::TcpOptions options;
  for (uint32_t i = 0; i < n_connections; ++i) {
    pollfd ready{listener, POLLIN, 0};
    if (::poll(&ready, 1, 10'000) != 1) return fail("the client process did not connect");
    const int peer = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (peer < 0) return tl::unexpected(failed("accept"));
    peers.push_back(sockets.add(peer));
    const int on = 1;
    ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &options.send_buffer_bytes, sizeof options.send_buffer_bytes);
  }
  const std::string chunk(chunk_bytes, 'x');
  const MonotonicTime begin = Monotonic::now();
  for (uint64_t i = 0; i < n_sends; ++i) {
    const int peer = peers[i % n_connections];
    for (size_t done = 0; done < chunk.size();) {
      const ssize_t n = ::send(peer, chunk.data() + done, chunk.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n >= 0) {
        done += static_cast<size_t>(n);
      } else if (errno == EAGAIN) {
        pollfd ready{peer, POLLOUT, 0};
        ::poll(&ready, 1, 10'000);
      } else {
        return tl::unexpected(failed("send"));
      }
    }
  }
  const double elapsed = seconds(Monotonic::now() - begin);
  for (const int peer : peers) ::shutdown(peer, SHUT_WR);
  const Result<ClientReport> report = client.receive();
  if (!report) return tl::unexpected(report.error());
  if (report->n_bytes != n_sends * chunk_bytes)
    return fail(fmt::format("the client read {} of {} bytes", report->n_bytes, n_sends * chunk_bytes));
  return static_cast<double>(n_sends) / elapsed;
}

// ---- without a model

int bench_stub(StreamClient& client, const BenchStreamOptions& options) {
  const uint32_t n_connections = options.connections > 0 ? options.connections : 64;
  const uint32_t max_tokens = options.max_tokens > 0 ? options.max_tokens : 3000;
  Result<std::unique_ptr<StreamServer>> server = StreamServer::over_stub(n_connections, kPromptTokens + max_tokens);
  if (!server) return fail_command(server.error().message);
  const ClientOrder order{.kind = ClientOrder::Kind::streamed,
                          .n_connections = n_connections,
                          .n_prompt = kPromptTokens,
                          .max_tokens = max_tokens};
  std::vector<double> rates, raw_rates, shares, events_per_send, tokens_per_send;
  double chunk_bytes = 0;
  for (uint32_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    const net::ServerCounters before = (*server)->counters();
    const uint64_t tokens_before = (*server)->n_generated();
    const Result<ClientReport> report = (*server)->run(client, order);
    if (!report) return fail_command(report.error().message);
    const auto n_sends = static_cast<double>((*server)->counters().sends - before.sends);
    const auto n_events = static_cast<double>(report->n_events);
    chunk_bytes = static_cast<double>(report->n_bytes) / n_sends;
    const Result<double> raw =
        raw_send_rate(client, n_connections, uint64_t{n_connections} * max_tokens, static_cast<size_t>(chunk_bytes));
    if (!raw) return fail_command(raw.error().message);
    if (round == 0) continue;
    rates.push_back(n_events / report->seconds);
    raw_rates.push_back(*raw);
    shares.push_back(rates.back() / *raw);
    events_per_send.push_back(n_events / n_sends);
    tokens_per_send.push_back(static_cast<double>((*server)->n_generated() - tokens_before) / n_sends);
  }
  fmt::print("connections={} events_s={:.0f} raw_sends_s={:.0f} ratio={:.1f}%\n", n_connections, median(rates),
             median(raw_rates), 100 * median(shares));
  fmt::print("events_per_send={:.3f} tokens_per_send={:.3f} bytes_per_send={:.0f}\n", median(events_per_send),
             median(tokens_per_send), chunk_bytes);
  return 0;
}

// ---- with a model

int bench_real(StreamClient& client, const BenchStreamOptions& options) {
  const uint32_t n_connections = options.connections > 0 ? options.connections : 16;
  const uint32_t max_tokens = options.max_tokens > 0 ? options.max_tokens : 128;
  Result<std::unique_ptr<StreamServer>> server = StreamServer::over_model(options.model);
  if (!server) return fail_command(server.error().message);
  using Kind = ClientOrder::Kind;
  // CPU seconds of this process, the device's threads included, per 1,000 tokens.
  const auto cost = [&](Kind kind) -> Result<double> {
    const double cpu_before = cpu_seconds();
    const uint64_t tokens_before = (*server)->n_generated();
    const Result<ClientReport> report = (*server)->run(
        client, {.kind = kind, .n_connections = n_connections, .n_prompt = kPromptTokens, .max_tokens = max_tokens});
    if (!report) return tl::unexpected(report.error());
    return 1e3 * (cpu_seconds() - cpu_before) / static_cast<double>((*server)->n_generated() - tokens_before);
  };
  std::vector<double> streamed, plain, ratios;
  ProgressBar bar("measuring", options.rounds + 1);
  for (uint32_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    const Kind first = round % 2 == 0 ? Kind::streamed : Kind::plain;
    const Kind second = round % 2 == 0 ? Kind::plain : Kind::streamed;
    Result<double> a = cost(first);
    if (!a) return fail_command(a.error().message);
    Result<double> b = cost(second);
    if (!b) return fail_command(b.error().message);
    if (first == Kind::plain) std::swap(a, b);
    bar.set(round + 1);
    if (round == 0) continue;
    streamed.push_back(*a);
    plain.push_back(*b);
    ratios.push_back(*a / *b);
  }
  fmt::print("connections={} streamed_cpu_s={:.4f} plain_cpu_s={:.4f} ratio={:.3f}\n", n_connections, median(streamed),
             median(plain), median(ratios));
  return 0;
}

}  // namespace

int bench_stream_command(const BenchStreamOptions& options) {
  Result<StreamClient> client = StreamClient::start();
  if (!client) return fail_command(client.error().message);
  log::start(options.model.log_level);
  const int code = options.model.model.empty() ? bench_stub(*client, options) : bench_real(*client, options);
  log::flush_and_stop();
  return code;
}

}  // namespace heddle::app
