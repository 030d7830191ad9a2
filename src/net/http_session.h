#pragma once
// The server's side of one HTTP/1.x connection, without I/O: bytes go in, steps come out. Owned by one HttpConnection,
// which performs the steps; the tests play that part with tables. It never answers a half-parsed request, and it hands
// out one request at a time, so that answers to pipelined requests keep their order.
//
//   step read ──bytes──▶ admit ──proceed()──▶ [send_continue] ▶ read … ▶ dispatch ──answered()──▶ next request
//                          └────refuse()─────▶ (answer it) ──answered()──▶ [rest of its body thrown away] ▶ next
//                          request
//   step fail: answer with failure(), then close. step close: close without a word.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/http.h"
#include "net/read_buffer.h"

namespace heddle::net {

struct HttpLimits {
  size_t head_bytes = 32 * 1024;         // request line and headers; also trailers, and one chunk's line
  size_t body_bytes = 64 * 1024 * 1024;  // after chunked framing is removed
  size_t discard_bytes = 256 * 1024;     // body of a refused request read and thrown away to keep its connection
  size_t pipelined_bytes = 64 * 1024;    // kept while an answer is being made
};

class HttpSession {
 public:
  enum class State : uint8_t {
    idle,       // no byte of the next request yet
    head,       // some bytes of it
    admitting,  // head complete, the handler's word is awaited
    body,
    discard,    // the rest of a refused request's body
    answering,  // handed out or refused: bytes are kept, not parsed
    closed,     // failed, or the peer has sent its last request
  };
  enum class Step : uint8_t { read, admit, send_continue, dispatch, fail, close };

  explicit HttpSession(HttpLimits limits);
  ~HttpSession();

  // Input. A room stays valid until the next room(), whatever else is called; it is empty when no more bytes are kept
  // now.
  std::span<char> room();
  void commit(size_t n);
  void end_of_input();  // the peer has sent its last byte

  // What to do now. `read` and states that wait for the caller give the same step until something was fed.
  Step next();

  api::HttpRequest& head();  // from step admit until dispatch; the caller completes peer and, where empty, id
  void proceed();            // after admit: read the body
  // After admit: the caller answers now. False: what follows can't be told from the unread body, so the connection must
  // close.
  bool refuse();
  api::HttpRequest take_request();                             // after dispatch
  void answered();                                             // the answer is complete
  const api::HttpReply& failure() const { return *failure_; }  // after fail

  State state() const { return state_; }
  bool input_ended() const { return input_ended_; }
  bool has_input() const { return !input_.empty(); }
  void drop_input() { input_.consume(input_.size()); }
  bool has_unread() const;  // closing now, with bytes that were sent and not read, would reset the connection
  size_t body_received() const { return body_received_; }  // of the present request

  // How to answer the present request.
  bool keep_alive() const { return keep_alive_; }  // as far as the client and the protocol are concerned
  bool is_head() const { return is_head_; }
  bool is_http_10() const { return is_http_10_; }

 private:
  class Parser;

  Step parse_head();
  Step parse_body();
  Step begin_request();
  Step need_bytes();
  Step fail(int status, std::string message, std::string param = {});

  HttpLimits limits_;
  ReadBuffer input_;
  std::unique_ptr<Parser> parser_;
  api::HttpRequest request_;
  std::optional<api::HttpReply> failure_;
  State state_ = State::idle;
  size_t head_received_ = 0;
  size_t body_received_ = 0;
  bool input_ended_ = false;
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool is_http_10_ = false;
  bool expects_continue_ = false;  // the client waits for our word before it sends the body
};

// Percent-decoding of a path; nullopt for a broken escape or one that decodes to a control character.
std::optional<std::string> decode_path(std::string_view path);

}  // namespace heddle::net
