#pragma once
// What the network room can be told, and what it counts. Plain values; the loop thread owns them once the server runs.
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "api/http.h"
#include "base/clock.h"
#include "net/http_session.h"
#include "net/tcp_connection.h"

namespace heddle::net {

struct ServerOptions {
  HttpLimits http;
  TcpOptions tcp;
  size_t max_connections = 4096;     // the next one is answered 503 and closed
  size_t outbox_bytes = 256 * 1024;  // a stream that has more than this waiting is cut at its next write

  // Enforced by one sweep over stored times, so each is late by up to `sweep`.
  Monotonic::duration sweep = std::chrono::milliseconds(100);
  Monotonic::duration idle = std::chrono::seconds(75);  // keep-alive connection without a request
  Monotonic::duration head = std::chrono::seconds(10);  // from a request's first byte to the end of its head
  Monotonic::duration body = std::chrono::seconds(60);  // and a second more for each `body_bytes_per_second` received
  size_t body_bytes_per_second = 16 * 1024;
  Monotonic::duration write = std::chrono::seconds(30);  // bytes wait and none was taken
  Monotonic::duration linger =
      std::chrono::seconds(2);  // for the peer to read the last answer when it is still sending
  Monotonic::duration sse_keep_alive =
      std::chrono::seconds(15);  // comment into an event stream so long silent; 0: never

  api::AccessLog access_log;  // may be empty
};

struct ServerCounters {
  size_t open = 0;        // connections now
  uint64_t accepted = 0;  // connections served
  uint64_t refused = 0;   // over max_connections, or out of descriptors
  uint64_t requests = 0;  // whole heads seen
  uint64_t bytes_in = 0;  // as read from and handed to the kernel, framing included
  uint64_t bytes_out = 0;
  uint64_t sends = 0;         // times that the kernel took bytes
  uint64_t timed_out = 0;     // requests that did not arrive in time
  uint64_t stalled = 0;       // answers cut because the reader took nothing
  uint64_t disconnected = 0;  // answers cut because the reader went away
};

}  // namespace heddle::net
