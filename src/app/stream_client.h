#pragma once
// The other end of `heddle bench stream`: a process of its own that opens connections, asks for completions and counts
// what comes, at the least cost (epoll, large reads, no JSON). Forked before the program has threads; ended and reaped
// by the destructor. It does one order at a time, over a pair of sockets; either side sees the other's death as an end
// of input.
#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/result.h"

namespace heddle::app {

struct ClientOrder {
  enum class Kind : uint8_t {
    raw,       // sends nothing, reads to the end
    streamed,  // POST /v1/completions, stream
    plain,     // the same, not streamed
  };
  Kind kind = Kind::raw;
  uint16_t port = 0;  // on 127.0.0.1
  uint32_t n_connections = 1, n_prompt = 1, max_tokens = 1;
};

struct ClientReport {
  uint64_t n_events = 0, n_bytes = 0, n_reads = 0;
  double seconds = 0;             // from the first byte to the last
  std::array<char, 120> error{};  // empty: every answer was a 200 and whole
};

class StreamClient {
 public:
  // In a process without threads.
  static Result<StreamClient> start();
  StreamClient(StreamClient&& other) noexcept;
  StreamClient& operator=(StreamClient&&) = delete;
  ~StreamClient();

  Result<void> send(const ClientOrder& order);
  int descriptor() const { return descriptor_; }  // gives one ClientReport an order
  Result<ClientReport> receive();                 // waits for it

 private:
  StreamClient(pid_t process, int descriptor) : process_(process), descriptor_(descriptor) {}

  pid_t process_;
  int descriptor_;
};

// Of a report that came: its error, if it has one.
Result<ClientReport> checked(const ClientReport& report);

}  // namespace heddle::app
