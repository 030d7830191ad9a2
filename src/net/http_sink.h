#pragma once
// The handler's handle on one exchange. Knows its connection while the answer is incomplete and the client is there;
// after that every call is a no-op. Owned by the handler; loop thread only.
#include "api/http.h"
#include "net/asio.h"

namespace heddle::net {

class HttpConnection;

class HttpSink final : public api::ResponseSink {
 public:
  HttpSink(asio::io_context& loop, HttpConnection& connection) : loop_(loop), connection_(&connection) {}
  ~HttpSink() override;

  void reply(api::HttpReply reply) override;
  void start_stream(int status, std::string_view content_type, api::HeaderList headers) override;
  api::Flow write(std::string_view chunk) override;
  void end() override;
  bool closed() const override;
  size_t unsent_bytes() const override;
  void on_gone(std::function<void(api::Gone)> callback) override;
  void on_writable(std::function<void()> callback) override;
  void annotate(std::string_view words) override;

  // The connection's side. After either of the first two it knows this sink no more.
  void complete();
  void lose(api::Gone reason);  // may destroy this sink
  void writable();              // may destroy this sink

 private:
  void check_call(bool answers) const;

  asio::io_context& loop_;
  HttpConnection* connection_;
  std::optional<api::Gone> gone_;
  std::function<void(api::Gone)> on_gone_;
  std::function<void()> on_writable_;
};

}  // namespace heddle::net
