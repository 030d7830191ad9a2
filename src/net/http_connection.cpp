#include "net/http_connection.h"

#include <boost/asio/post.hpp>
#include <ctime>
#include <exception>
#include <utility>

#include "api/ascii.h"
#include "api/error.h"
#include "api/sse.h"
#include "base/check.h"
#include "base/log.h"
#include "net/http_sink.h"
#include "net/request_id.h"

namespace heddle::net {

namespace {
constexpr size_t lingering_bytes = 1024 * 1024;  // thrown away for a peer that goes on sending after its last answer
}

HttpConnection::HttpConnection(ServerContext& context, std::unique_ptr<Connection> connection)
    : context_(context),
      connection_(std::move(connection)),
      session_(context.options.http),
      place_(context.connections.insert(context.connections.end(), this)),
      receive_mark_(Monotonic::now()) {
  ++context_.counters.accepted;
}

HttpConnection::~HttpConnection() {
  // Only where the loop itself was torn down: serve() has done this otherwise.
  if (sink_ != nullptr) sink_->complete();
}

// --- the two coroutines ---------------------------------------------------------------------------------------------

Task<> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  std::exception_ptr error;
  try {
    co_await self->read_until_closed();
  } catch (...) {
    error = std::current_exception();
  }
  self->finish();
  if (error) std::rethrow_exception(error);
}

Task<> HttpConnection::read_until_closed() {
  while (phase_ != Phase::closed) {
    if (phase_ == Phase::lingering) session_.drop_input();
    const std::span<char> room = session_.input_ended() ? std::span<char>{} : session_.room();
    if (room.empty()) {
      const IoResult result = co_await connection_->watch();
      if (result.status == IoStatus::failed) cut(api::Gone::disconnected);
    } else {
      const IoResult result = co_await connection_->read_some(room);
      take_read(result);
    }
  }
}

void HttpConnection::take_read(IoResult result) {
  if (phase_ == Phase::closed) return;
  switch (result.status) {
    case IoStatus::ok:
      session_.commit(result.n);
      context_.counters.bytes_in += result.n;
      if (phase_ == Phase::lingering) {
        lingered_ += result.n;
        if (lingered_ > lingering_bytes) close();
      } else {
        advance();
      }
      break;
    case IoStatus::end:
      session_.end_of_input();
      if (phase_ == Phase::lingering) {
        close();
      } else if (phase_ == Phase::awaiting) {
        cut(api::Gone::disconnected);  // a stream goes on: its reader may have closed one direction only
      } else {
        advance();
      }
      break;
    case IoStatus::failed:
    case IoStatus::would_block:
    case IoStatus::cancelled:
      cut(api::Gone::disconnected);
      break;
  }
}

Task<> HttpConnection::flush(std::shared_ptr<HttpConnection> self) {
  while (self->phase_ != Phase::closed && !self->outbox_.empty()) {
    const IoResult ready = co_await self->connection_->wait_writable();
    if (self->phase_ == Phase::closed) break;
    if (ready.status == IoStatus::ok) {
      self->write_out();
    } else {
      self->cut(api::Gone::disconnected);
    }
  }
  self->flusher_runs_ = false;
  if (self->phase_ == Phase::closed) co_return;
  self->flushed();
  if (std::exchange(self->behind_, false) && self->sink_ != nullptr) self->sink_->writable();
}

void HttpConnection::finish() {
  close();
  if (record_) {
    record_->gone = gone_;
    if (gone_ == api::Gone::disconnected) ++context_.counters.disconnected;
    if (gone_ == api::Gone::stalled) ++context_.counters.stalled;
    close_record();
  }
  if (sink_ != nullptr) std::exchange(sink_, nullptr)->lose(gone_);
  context_.connections.erase(place_);
  if (context_.connections.empty()) context_.drained.cancel();
}

// --- requests -------------------------------------------------------------------------------------------------------

void HttpConnection::advance() {
  if (advancing_) return;
  advancing_ = true;
  bool waits = false;
  while (phase_ == Phase::receiving && !waits) {
    switch (session_.next()) {
      case HttpSession::Step::read:
        waits = true;
        break;
      case HttpSession::Step::admit:
        admit();
        break;
      case HttpSession::Step::send_continue:
        outbox_.tail() += continue_line;
        send_pending();
        break;
      case HttpSession::Step::dispatch:
        dispatch();
        break;
      case HttpSession::Step::fail:
        open_record();
        answer(session_.failure(), false);
        break;
      case HttpSession::Step::close:
        close();
        break;
    }
    if (session_.state() != seen_) {
      seen_ = session_.state();
      receive_mark_ = Monotonic::now();
    }
  }
  advancing_ = false;
}

void HttpConnection::advance_soon() {
  if (advancing_) return;
  asio::post(context_.loop, [self = shared_from_this()] { self->advance(); });
}

void HttpConnection::open_record() {
  if (record_) return;
  const api::HttpRequest& head = session_.head();
  record_.emplace();
  record_->method = head.method;
  record_->path = head.path;
  record_->peer = connection_->peer();
  record_->id = head.id;
  arrival_ = head.path.empty() ? receive_mark_ : head.arrival.monotonic;
}

void HttpConnection::close_record() {
  record_->bytes_in = session_.body_received();
  record_->seconds = seconds(Monotonic::now() - arrival_);
  if (context_.options.access_log) context_.options.access_log(*record_);
  record_.reset();
}

void HttpConnection::admit() {
  api::HttpRequest& head = session_.head();
  head.peer = connection_->peer();
  if (head.id.empty()) head.id = make_request_id();
  ++context_.counters.requests;
  open_record();
  api::Admission admission;
  try {
    admission = context_.handler.admit(head);
  } catch (const std::exception& error) {
    log::error("{} {}: admission failed: {}", head.method, head.path, error.what());
    admission.refusal = api::error_reply({500, "internal error", {}});
  }
  common_ = std::move(admission.headers);
  if (admission.refusal) {
    const bool keep_alive = session_.refuse();
    answer(*admission.refusal, keep_alive);
  } else {
    session_.proceed();
  }
}

void HttpConnection::dispatch() {
  phase_ = Phase::awaiting;
  auto sink = std::make_shared<HttpSink>(context_.loop, *this);
  sink_ = sink.get();
  try {
    context_.handler.handle(session_.take_request(), std::move(sink));
  } catch (const std::exception& error) {
    log::error("{} {}: the handler failed: {}", record_ ? record_->method : "", record_ ? record_->path : "",
               error.what());
  }
  if (phase_ == Phase::awaiting && session_.input_ended()) cut(api::Gone::disconnected);
}

// --- answers --------------------------------------------------------------------------------------------------------

void HttpConnection::append_answer_head(int status, std::string_view content_type, const api::HeaderList& headers,
                                        Framing framing, uint64_t length) {
  if (context_.stopping) keep_alive_ = false;
  record_->status = status;
  ResponseHead head;
  head.status = status;
  head.content_type = content_type;
  head.common = &common_;
  head.headers = &headers;
  head.request_id = record_->id;
  head.framing = framing;
  head.length = length;
  head.keep_alive = keep_alive_;
  head.is_http_10 = session_.is_http_10();
  append_head(outbox_.tail(), head, std::time(nullptr));
}

void HttpConnection::answer(const api::HttpReply& reply, bool keep_alive) {
  keep_alive_ = keep_alive;
  append_answer_head(reply.status, reply.content_type, reply.headers, Framing::length, reply.body.size());
  if (has_body(reply.status) && !session_.is_head()) {
    outbox_.tail() += reply.body;
    record_->bytes_out += reply.body.size();
  }
  phase_ = Phase::flushing;
  if (sink_ != nullptr) std::exchange(sink_, nullptr)->complete();
  send_pending();
}

void HttpConnection::reply(api::HttpReply reply) {
  if (phase_ == Phase::awaiting) answer(reply, session_.keep_alive());
}

void HttpConnection::start_stream(int status, std::string_view content_type, const api::HeaderList& headers) {
  if (phase_ != Phase::awaiting) return;
  chunked_ = !session_.is_http_10();
  keep_alive_ = chunked_ && session_.keep_alive();
  append_answer_head(status, content_type, headers, chunked_ ? Framing::chunked : Framing::until_close, 0);
  constexpr std::string_view event_stream = "text/event-stream";
  is_event_stream_ = api::equals_ignoring_case(content_type.substr(0, event_stream.size()), event_stream);
  wrote_ = true;
  phase_ = Phase::streaming;
  send_pending();
}

api::Flow HttpConnection::write(std::string_view chunk) {
  if (phase_ != Phase::streaming) return api::Flow::gone;
  if (session_.is_head()) return api::Flow::open;
  // What waits already decides, not this chunk: one event may be larger than the outbox.
  if (outbox_.size() > context_.options.outbox_bytes) {
    cut(api::Gone::stalled);
    return api::Flow::gone;
  }
  if (chunked_) {
    append_chunk(outbox_.tail(), chunk);
  } else {
    outbox_.tail() += chunk;
  }
  record_->bytes_out += chunk.size();
  wrote_ = true;
  send_pending();
  if (phase_ == Phase::closed) return api::Flow::gone;
  if (outbox_.empty()) return api::Flow::open;
  behind_ = true;
  return api::Flow::behind;
}

void HttpConnection::end_stream() {
  if (phase_ != Phase::streaming) return;
  if (chunked_ && !session_.is_head()) outbox_.tail() += last_chunk;
  phase_ = Phase::flushing;
  std::exchange(sink_, nullptr)->complete();
  send_pending();
}

void HttpConnection::abandon() {
  sink_ = nullptr;
  if (phase_ == Phase::awaiting) {
    log::error("{} {}: the handler gave no answer", record_->method, record_->path);
    answer(api::error_reply({500, "internal error", {}}), session_.keep_alive());
  } else if (phase_ == Phase::streaming) {
    log::error("{} {}: the handler left a stream without an end", record_->method, record_->path);
    cut(api::Gone::disconnected);
  }
}

void HttpConnection::annotate(std::string_view words) {
  if (!record_) return;
  if (!record_->notes.empty()) record_->notes += ' ';
  record_->notes += words;
}

// While a flusher runs it alone writes, so order and progress have one owner.
void HttpConnection::send_pending() {
  if (flusher_runs_) return;
  if (!outbox_.empty()) write_out();
  if (phase_ == Phase::closed) return;
  if (outbox_.empty()) {
    flushed();
  } else {
    flusher_runs_ = true;
    write_mark_ = Monotonic::now();
    context_.scope.spawn(flush(shared_from_this()));
  }
}

// Gives the kernel what it takes now.
void HttpConnection::write_out() {
  const IoResult result = connection_->try_write(outbox_.view());
  outbox_.consume(result.n);
  context_.counters.bytes_out += result.n;
  context_.counters.sends += result.n > 0;
  if (result.n > 0 && flusher_runs_) write_mark_ = Monotonic::now();
  if (result.status == IoStatus::failed || result.status == IoStatus::cancelled) cut(api::Gone::disconnected);
}

void HttpConnection::flushed() {
  if (phase_ == Phase::flushing) exchange_done();
}

void HttpConnection::exchange_done() {
  close_record();
  common_.clear();
  behind_ = false;
  if (!keep_alive_ || context_.stopping) {
    if (session_.input_ended() || !session_.has_unread()) {
      close();
      return;
    }
    connection_->shutdown_write();
    phase_ = Phase::lingering;
    receive_mark_ = Monotonic::now();
    connection_->stop_watching();
    return;
  }
  session_.answered();
  phase_ = Phase::receiving;
  connection_->stop_watching();
  if (session_.has_input() || session_.input_ended()) {
    advance_soon();
  } else if (!advancing_) {
    seen_ = session_.state();
    receive_mark_ = Monotonic::now();
  }
}

// --- ends -----------------------------------------------------------------------------------------------------------

void HttpConnection::close() {
  phase_ = Phase::closed;
  connection_->close();
}

void HttpConnection::cut(api::Gone reason) {
  if (phase_ == Phase::closed) return;
  gone_ = reason;
  close();
}

void HttpConnection::stop_when_idle() {
  if (phase_ == Phase::receiving && session_.state() == HttpSession::State::idle && !session_.has_input() &&
      outbox_.empty()) {
    close();
  }
}

void HttpConnection::time_out() {
  ++context_.counters.timed_out;
  open_record();
  answer(api::error_reply({408, "the request did not arrive in time", {}}), false);
}

void HttpConnection::sweep(MonotonicTime now) {
  const ServerOptions& limit = context_.options;
  if (phase_ == Phase::closed) return;
  if (!outbox_.empty()) {
    if (overdue(now, write_mark_, limit.write)) cut(api::Gone::stalled);
    return;
  }
  if (phase_ == Phase::lingering) {
    if (overdue(now, receive_mark_, limit.linger)) close();
  } else if (phase_ == Phase::streaming) {
    if (std::exchange(wrote_, false)) {
      quiet_mark_ = now;
    } else if (is_event_stream_ && limit.sse_keep_alive.count() > 0 &&
               overdue(now, quiet_mark_, limit.sse_keep_alive)) {
      write(api::sse_keep_alive);
    }
  } else if (phase_ == Phase::receiving) {
    switch (session_.state()) {
      case HttpSession::State::idle:
        if (overdue(now, receive_mark_, limit.idle)) close();
        break;
      case HttpSession::State::head:
        if (overdue(now, receive_mark_, limit.head)) time_out();
        break;
      case HttpSession::State::body: {
        const auto earned = std::chrono::seconds(session_.body_received() / limit.body_bytes_per_second);
        if (overdue(now, receive_mark_, limit.body + earned)) time_out();
        break;
      }
      case HttpSession::State::discard:
        if (overdue(now, receive_mark_, limit.head)) close();
        break;
      case HttpSession::State::admitting:
      case HttpSession::State::answering:
      case HttpSession::State::closed:
        break;
    }
  }
}

}  // namespace heddle::net
