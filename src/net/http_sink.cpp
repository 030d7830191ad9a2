#include "net/http_sink.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "base/check.h"
#include "net/http_connection.h"

namespace heddle::net {

HttpSink::~HttpSink() {
  if (connection_ != nullptr) std::exchange(connection_, nullptr)->abandon();
}

// Bugs of the handler, looked for in debug builds: a call from another thread (invariant loop-only), a second answer.
void HttpSink::check_call(bool answers) const {
#ifndef NDEBUG
  HEDDLE_CHECK(connection_ == nullptr || loop_.get_executor().running_in_this_thread());
  HEDDLE_CHECK(!answers || gone_ || (connection_ != nullptr && !connection_->is_streaming()));
#else
  (void)answers;
#endif
}

void HttpSink::reply(api::HttpReply reply) {
  check_call(true);
  if (connection_ != nullptr) connection_->reply(std::move(reply));
}

void HttpSink::start_stream(int status, std::string_view content_type, api::HeaderList headers) {
  check_call(true);
  if (connection_ != nullptr) connection_->start_stream(status, content_type, headers);
}

api::Flow HttpSink::write(std::string_view chunk) {
  check_call(false);
  return connection_ != nullptr ? connection_->write(chunk) : api::Flow::gone;
}

void HttpSink::end() {
  check_call(false);
  if (connection_ != nullptr) connection_->end_stream();
}

bool HttpSink::closed() const { return connection_ == nullptr || connection_->is_closed(); }
size_t HttpSink::unsent_bytes() const { return connection_ != nullptr ? connection_->unsent_bytes() : 0; }

void HttpSink::on_gone(std::function<void(api::Gone)> callback) {
  check_call(false);
  if (connection_ != nullptr) {
    on_gone_ = std::move(callback);
  } else if (gone_ && callback) {
    asio::post(loop_, [callback = std::move(callback), reason = *gone_] { callback(reason); });
  }
}

void HttpSink::on_writable(std::function<void()> callback) {
  if (connection_ != nullptr) on_writable_ = std::move(callback);
}

void HttpSink::annotate(std::string_view words) {
  if (connection_ != nullptr) connection_->annotate(words);
}

void HttpSink::complete() {
  connection_ = nullptr;
  // The callbacks may own the last reference to what called us: they go when the loop is back in its own code.
  if (on_gone_ || on_writable_) {
    asio::post(loop_, [gone = std::move(on_gone_), writable = std::move(on_writable_)] {});
  }
  on_gone_ = nullptr;
  on_writable_ = nullptr;
}

void HttpSink::lose(api::Gone reason) {
  connection_ = nullptr;
  gone_ = reason;
  const auto writable = std::exchange(on_writable_, nullptr);
  const auto callback = std::exchange(on_gone_, nullptr);
  if (callback) callback(reason);
}

void HttpSink::writable() {
  const auto callback = on_writable_;  // a copy: the call may replace it, or end the exchange
  if (callback) callback();
}

}  // namespace heddle::net
