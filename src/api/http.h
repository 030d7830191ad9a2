#pragma once
// The seam between the dialects (this room) and the network (net/): a request as a value, a sink for its answer, and
// the handler that joins them. Plain types: no socket, no parser, no event loop. Everything here is touched on the loop
// thread only (invariant loop-only).
//
// Life of one exchange:
//   1. net has read a request's head: it calls Handler::admit(head), which may refuse before a byte of body is read.
//   2. net has read the whole request: it calls Handler::handle(request, sink), which must not block. The handler
//   answers now
//      or keeps the shared handle and answers later.
//   3. The answer is either one reply(), or start_stream(), any number of write()s, end(). The first answer wins; a
//   second
//      one is a bug of the handler and aborts in debug builds (it is ignored in release builds).
//   4. When the client goes away first, on_gone is called once, and every later call on the sink is a harmless no-op.
//
// Lifetime: the handler owns the sink for as long as it holds the handle. Dropping the last handle without an answer
// sends a 500 (before start_stream) or cuts the connection (after it), so no request stays unanswered. The sink drops
// the callbacks it was given once the exchange is over; until then it keeps them alive, so a callback that captures the
// sink's own handle would make a cycle: capture an id or a weak_ptr instead.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace heddle::api {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HeaderList = std::vector<HttpHeader>;

// The first value of `name` (compared without case), or nullopt.
std::optional<std::string_view> find_header(const HeaderList& headers, std::string_view name);
size_t count_header(const HeaderList& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // as sent: "GET"; methods are case-sensitive
  std::string path;    // percent-decoded once, otherwise as sent: "//v1/x" and "/v1/x/" are paths of their own
  std::string query;   // after the '?', not decoded
  HeaderList headers;  // in the order sent; a name may occur more than once
  std::string body;    // whole, chunked framing removed; empty in admit()
  std::string peer;    // "127.0.0.1:54321", for the log
  std::string id;    // X-Request-Id when the client sent a usable one, else made by net; unique only in the latter case
  Arrival arrival;   // when the head was complete
  uint32_t key = 0;  // which of the server's API keys it came with, from 1; set by the router, 0 without keys

  std::optional<std::string_view> header(std::string_view name) const { return find_header(headers, name); }
};

struct HttpReply {
  int status = 200;
  std::string content_type;  // no Content-Type header when empty
  std::string body;
  HeaderList headers;
};

// Where a stream stands after a write.
enum class Flow : uint8_t {
  open,    // the kernel took everything
  behind,  // bytes wait in the outbox: a caller that can merge its next deltas should, until on_writable
  gone,    // nobody reads any more: stop
};

enum class Gone : uint8_t {
  disconnected,  // reset, failed write, or an orderly end before a stream began
  stalled,       // outbox full, or no progress for too long
  shutdown,      // the server stops and its deadline has passed
};

class ResponseSink {
 public:
  virtual ~ResponseSink() = default;

  // One complete answer. net adds Content-Length, Date, Connection, X-Request-Id and the admission's headers; the body
  // of an answer to HEAD is counted and not sent.
  virtual void reply(HttpReply reply) = 0;

  // Sends the head of a stream at once. Chunked framing (or, for HTTP/1.0, the connection's end) delimits it.
  virtual void start_stream(int status, std::string_view content_type, HeaderList headers = {}) = 0;
  // Appends to the bounded outbox and tries to send without blocking: hand over one whole event a call. The bytes are
  // copied or sent before it returns. An outbox that overflows ends the exchange with Gone::stalled.
  virtual Flow write(std::string_view chunk) = 0;
  // The stream's orderly end.
  virtual void end() = 0;

  virtual bool closed() const = 0;          // answered in full, or the client has gone
  virtual size_t unsent_bytes() const = 0;  // waiting in the outbox

  // Called at most once, from the loop and never from inside a call on the sink, when the client is gone before the
  // answer was complete. If it has gone already, the call follows from the loop soon after.
  virtual void on_gone(std::function<void(Gone)> callback) = 0;
  // Called, from the loop and never from inside a call on the sink, each time the outbox has become empty after a write
  // said Flow::behind.
  virtual void on_writable(std::function<void()> callback) = 0;

  // Adds words to this request's line in the access log: "prompt=12 generated=40 finish=stop".
  virtual void annotate(std::string_view words) = 0;
};

// What admit() says about a request whose head has been read.
struct Admission {
  HeaderList headers;                // added to every answer of this request, errors of the network layer included
  std::optional<HttpReply> refusal;  // answered at once, the body unread; otherwise the request goes on
};

class Handler {
 public:
  virtual ~Handler() = default;
  virtual Admission admit(const HttpRequest& head) {
    (void)head;
    return {};
  }
  virtual void handle(HttpRequest request, std::shared_ptr<ResponseSink> sink) = 0;
};

// One line of the access log, given to a hook when a request has ended (exactly once for each that got an answer or
// began to).
struct AccessRecord {
  std::string method, path, peer, id;
  int status = 0;            // 0: the client had gone before there was one
  uint64_t bytes_in = 0;     // body
  uint64_t bytes_out = 0;    // body as handed to the kernel, framing excluded
  double seconds = 0;        // from the arrival to the last byte handed to the kernel
  std::optional<Gone> gone;  // set when the answer was cut short
  std::string notes;         // annotate()
};
using AccessLog = std::function<void(const AccessRecord&)>;

}  // namespace heddle::api
