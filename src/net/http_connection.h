#pragma once
// One client on the wire: performs the steps of its HttpSession over its Connection, and is what a ResponseSink writes
// to. Kept alive by its serving coroutine; loop thread only.
//
// Two coroutines at most: serve() always has a read pending (the next request, and the watch for a client that leaves),
// flush() exists only while the kernel takes less than it is given. Everything else is plain functions that never wait.
// Whatever goes wrong ends in cut(), which closes the stream; serve() then comes back, and tells the handler.
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "net/connection.h"
#include "net/http_response.h"
#include "net/http_session.h"
#include "net/outbox.h"
#include "net/scope.h"
#include "net/server_options.h"

namespace heddle::net {

class HttpConnection;
class HttpSink;

// What the connections of one server share.
struct ServerContext {
  ServerContext(asio::io_context& io, ServerOptions o, api::Handler& h)
      : loop(io), options(std::move(o)), handler(h), scope(io.get_executor(), "server"), drained(io.get_executor()) {}

  asio::io_context& loop;
  const ServerOptions options;
  api::Handler& handler;
  Scope scope;
  ServerCounters counters;
  std::list<HttpConnection*> connections;
  Timer drained;          // a condition: cancelled when `connections` becomes empty
  bool stopping = false;  // no request is waited for any more
};

class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(ServerContext& context, std::unique_ptr<Connection> connection);
  ~HttpConnection();

  static Task<> serve(std::shared_ptr<HttpConnection> self);

  void sweep(MonotonicTime now);  // compares stored times, acts on what is overdue
  void stop_when_idle();          // at once if no request is under way
  void cut(api::Gone reason);

  // The sink's side.
  void reply(api::HttpReply reply);
  void start_stream(int status, std::string_view content_type, const api::HeaderList& headers);
  api::Flow write(std::string_view chunk);
  void end_stream();
  void abandon();  // the handler dropped its handle
  void annotate(std::string_view words);
  bool is_closed() const { return phase_ == Phase::closed; }
  bool is_streaming() const { return phase_ == Phase::streaming; }
  size_t unsent_bytes() const { return outbox_.size(); }

 private:
  enum class Phase : uint8_t {
    receiving,  // the next request; the session knows how far
    awaiting,   // the handler has a request and has not begun to answer
    streaming,  // it is writing the answer
    flushing,   // the answer is complete here, the kernel has not taken all of it
    lingering,  // last answer sent; what still comes in is thrown away so that no reset overtakes the answer
    closed,
  };

  static Task<> flush(std::shared_ptr<HttpConnection> self);
  Task<> read_until_closed();
  void take_read(IoResult result);
  void advance();  // performs the session's steps until it waits for something
  void advance_soon();
  void admit();
  void dispatch();
  void answer(const api::HttpReply& reply, bool keep_alive);
  void append_answer_head(int status, std::string_view content_type, const api::HeaderList& headers, Framing framing,
                          uint64_t length);
  void time_out();
  void open_record();
  void close_record();
  void send_pending();
  void write_out();
  void flushed();
  void exchange_done();
  void close();
  bool overdue(MonotonicTime now, MonotonicTime since, Monotonic::duration limit) const { return now - since > limit; }
  void finish();

  ServerContext& context_;
  std::unique_ptr<Connection> connection_;
  HttpSession session_;
  Outbox outbox_;
  std::list<HttpConnection*>::iterator place_;  // in context_.connections
  HttpSink* sink_ = nullptr;                    // while the handler's handle is alive and the answer incomplete
  std::optional<api::AccessRecord> record_;     // of the present exchange
  MonotonicTime arrival_{};
  api::HeaderList common_;  // the admission's headers
  api::Gone gone_ = api::Gone::disconnected;
  Phase phase_ = Phase::receiving;
  HttpSession::State seen_ = HttpSession::State::idle;  // the state that receive_mark_ is about
  MonotonicTime receive_mark_;                          // when seen_, or lingering, began
  MonotonicTime write_mark_{};  // last time the kernel took a byte, while the outbox is not empty
  MonotonicTime quiet_mark_{};  // sweep that last saw the stream written to
  size_t lingered_ = 0;
  bool keep_alive_ = false;  // after the present answer
  bool chunked_ = false;     // framing of the present stream
  bool is_event_stream_ = false;
  bool wrote_ = false;   // since the last sweep
  bool behind_ = false;  // the handler was told so and waits for on_writable
  bool flusher_runs_ = false;
  bool advancing_ = false;  // advance() is on the stack
};

}  // namespace heddle::net
