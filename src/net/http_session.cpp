#include "net/http_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "api/ascii.h"
#include "api/error.h"
#include "base/check.h"

namespace heddle::net {
namespace {

namespace http = boost::beast::http;
using BeastError = boost::beast::error_code;
using BeastView = boost::beast::string_view;

constexpr size_t small_read = 4 * 1024;   // what an idle connection costs
constexpr size_t large_read = 64 * 1024;  // while a body comes in

// With fewer bytes than the shortest end of a chunked body, the parser of Beast 1.81 trips over an assertion of its
// own; more bytes are certain to follow, so waiting for them is free.
constexpr size_t shortest_chunked_end = 5;

std::string_view view(BeastView text) { return {text.data(), text.size()}; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = api::to_lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool is_usable_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) { return c > ' ' && c < 127; });
}

// The path and query of a request target: origin form, absolute form, or "*".
bool split_target(std::string_view target, std::string_view& path, std::string_view& query) {
  const size_t scheme_end = target.find("://");
  if (!target.starts_with('/') && scheme_end != std::string_view::npos) {
    const std::string_view scheme = target.substr(0, scheme_end);
    if (!api::equals_ignoring_case(scheme, "http") && !api::equals_ignoring_case(scheme, "https")) return false;
    target.remove_prefix(scheme_end + 3);
    const size_t authority_end = std::min(target.find_first_of("/?"), target.size());
    if (authority_end == 0) return false;
    target.remove_prefix(authority_end);
  } else if (!target.starts_with('/') && target != "*") {
    return false;
  }
  const size_t mark = std::min(target.find('?'), target.size());
  path = target.substr(0, mark);
  query = mark < target.size() ? target.substr(mark + 1) : std::string_view{};
  if (path.empty()) path = "/";
  return true;
}

}  // namespace

std::optional<std::string> decode_path(std::string_view path) {
  std::string out;
  out.reserve(path.size());
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      const int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
      const int low = i + 2 < path.size() ? hex_digit(path[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < ' ' || c == 127) return std::nullopt;
    out += c;
  }
  return out;
}

// Beast's grammar with our storage: fields go straight into the request, the body grows as it arrives. A refusal by a
// limit is told from a syntax error by `refusal`.
class HttpSession::Parser final : public http::basic_parser<true> {
 public:
  Parser(api::HttpRequest& request, const HttpLimits& limits) : request_(request) {
    header_limit(static_cast<uint32_t>(limits.head_bytes));
    body_limit(boost::none);  // checked here and in HttpSession, where the answer can name the limit
  }

  std::string target;
  int version = 11;
  size_t payload_limit = 0;
  size_t received = 0;  // payload so far
  bool keep = true;     // false: the payload is counted and thrown away
  bool too_large = false;

 private:
  void on_request_impl(http::verb, BeastView method, BeastView request_target, int http_version, BeastError&) override {
    request_.method = view(method);
    target = view(request_target);
    version = http_version;
  }
  void on_field_impl(http::field, BeastView name, BeastView value, BeastError&) override {
    // After the head these are trailers, which may not change what was decided by then (authorisation, framing).
    if (is_header_done()) return;
    request_.headers.push_back({std::string(view(name)), std::string(view(value))});
  }
  size_t take(BeastView bytes, BeastError& error) {
    if (bytes.size() > payload_limit - received) {
      too_large = true;
      error = http::error::body_limit;
      return 0;
    }
    received += bytes.size();
    if (keep) request_.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  size_t on_body_impl(BeastView bytes, BeastError& error) override { return take(bytes, error); }
  size_t on_chunk_body_impl(uint64_t, BeastView bytes, BeastError& error) override { return take(bytes, error); }
  void on_chunk_header_impl(uint64_t size, BeastView, BeastError& error) override {
    if (size <= payload_limit - received) return;
    too_large = true;  // announced, so refused before it arrives
    error = http::error::body_limit;
  }
  void on_response_impl(int, BeastView, int, BeastError&) override {}
  void on_header_impl(BeastError&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, BeastError&) override {}
  void on_finish_impl(BeastError&) override {}

  api::HttpRequest& request_;
};

HttpSession::HttpSession(HttpLimits limits) : limits_(limits) {}
HttpSession::~HttpSession() = default;

std::span<char> HttpSession::room() {
  if (state_ == State::body || state_ == State::discard) {
    const auto remaining = parser_->content_length_remaining();
    return input_.prepare(remaining ? std::clamp<size_t>(*remaining, small_read, large_read) : large_read);
  }
  const size_t bound = state_ == State::answering ? limits_.pipelined_bytes : limits_.head_bytes + small_read;
  if (input_.size() >= bound) return {};
  return input_.prepare(std::min(small_read, bound - input_.size()));
}

void HttpSession::commit(size_t n) { input_.commit(n); }
void HttpSession::end_of_input() { input_ended_ = true; }

HttpSession::Step HttpSession::next() {
  switch (state_) {
    case State::idle:
    case State::head:
      return parse_head();
    case State::admitting:
      return Step::admit;
    case State::body:
    case State::discard:
      return parse_body();
    case State::answering:
      return Step::read;
    case State::closed:
      break;
  }
  return failure_ ? Step::fail : Step::close;
}

HttpSession::Step HttpSession::need_bytes() {
  if (!input_ended_) return Step::read;
  // Between two requests this is the orderly end; inside one, the client has given up, and nobody waits for an answer.
  state_ = State::closed;
  return Step::close;
}

HttpSession::Step HttpSession::fail(int status, std::string message, std::string param) {
  state_ = State::closed;
  keep_alive_ = false;
  failure_ = api::error_reply({status, std::move(message), std::move(param)});
  return Step::fail;
}

HttpSession::Step HttpSession::parse_head() {
  if (state_ == State::idle) {
    // Empty lines before a request line are left over from sloppy clients (RFC 9112, 2.2).
    while (input_.view().starts_with("\r\n")) input_.consume(2);
    if (input_.empty() || input_.view() == "\r") return need_bytes();
    state_ = State::head;
    request_ = {};
    head_received_ = body_received_ = 0;
    is_head_ = is_http_10_ = expects_continue_ = false;
    keep_alive_ = true;
    parser_ = std::make_unique<Parser>(request_, limits_);
  }
  if (input_.empty()) return need_bytes();

  BeastError error;
  const std::string_view bytes = input_.view();
  const size_t line_end = bytes.find('\n');
  if (line_end != std::string_view::npos && (line_end == 0 || bytes[line_end - 1] != '\r')) {
    return fail(400, "malformed HTTP request: lines end with carriage return and line feed");
  }
  const size_t taken = parser_->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  head_received_ += taken;
  const size_t pending = error == http::error::need_more ? bytes.size() - taken : 0;
  input_.consume(taken);
  if (error == http::error::header_limit || head_received_ + pending > limits_.head_bytes) {
    if (head_received_ == 0 && line_end >= limits_.head_bytes)
      return fail(414, fmt::format("the request line is longer than {} bytes", limits_.head_bytes));
    return fail(431, fmt::format("the request's head is longer than {} bytes", limits_.head_bytes));
  }
  if (error == http::error::need_more || (!error && !parser_->is_header_done())) return need_bytes();
  if (error == http::error::bad_version) return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  if (error) return fail(400, fmt::format("malformed HTTP request: {}", error.message()));
  return begin_request();
}

// Rules about the head as a whole. Those that need no handler come first; framing must be beyond doubt (RFC 9112, 6.3
// and 11.2).
HttpSession::Step HttpSession::begin_request() {
  request_.arrival = Arrival::now();
  is_http_10_ = parser_->version == 10;
  is_head_ = request_.method == "HEAD";

  std::string_view path, query;
  if (!split_target(parser_->target, path, query)) return fail(400, "malformed request target");
  std::optional<std::string> decoded = decode_path(path);
  if (!decoded) return fail(400, "malformed percent escape in the request's path");
  request_.path = std::move(*decoded);
  request_.query = query;

  const size_t hosts = api::count_header(request_.headers, "Host");
  if (hosts > 1 || (hosts == 0 && !is_http_10_)) return fail(400, "exactly one Host header is needed", "Host");

  const size_t encodings = api::count_header(request_.headers, "Transfer-Encoding");
  if (encodings > 0) {
    const std::string_view coding = api::trim(*request_.header("Transfer-Encoding"));
    if (is_http_10_) return fail(400, "HTTP/1.0 has no Transfer-Encoding", "Transfer-Encoding");
    if (encodings > 1 || !api::equals_ignoring_case(coding, "chunked") || !parser_->chunked()) {
      return fail(501, "the only transfer coding understood is chunked", "Transfer-Encoding");
    }
  }
  const auto expectation = request_.header("Expect");
  if (expectation && !is_http_10_) {
    if (!api::equals_ignoring_case(api::trim(*expectation), "100-continue")) {
      return fail(417, "the only expectation understood is 100-continue", "Expect");
    }
    expects_continue_ = !parser_->is_done();
  }
  const auto id = request_.header("X-Request-Id");
  if (id && is_usable_id(*id)) request_.id = *id;

  keep_alive_ = parser_->keep_alive();
  state_ = State::admitting;
  return Step::admit;
}

api::HttpRequest& HttpSession::head() { return request_; }

void HttpSession::proceed() {
  HEDDLE_CHECK(state_ == State::admitting);
  state_ = State::body;
  const auto length = parser_->content_length();
  if (length && *length > limits_.body_bytes) {
    fail(413, fmt::format("the body has {} bytes, the limit is {}", *length, limits_.body_bytes));
    return;
  }
  parser_->payload_limit = limits_.body_bytes;
}

bool HttpSession::refuse() {
  HEDDLE_CHECK(state_ == State::admitting);
  state_ = State::answering;
  const auto length = parser_->content_length();
  // A client that waits for our word may or may not send the body after a refusal: what comes next can't be told.
  if (expects_continue_ || (length && *length > limits_.discard_bytes)) keep_alive_ = false;
  parser_->keep = false;
  parser_->payload_limit = limits_.discard_bytes;
  return keep_alive_;
}

HttpSession::Step HttpSession::parse_body() {
  while (!parser_->is_done()) {
    if (expects_continue_) {
      expects_continue_ = false;
      if (input_.empty()) return Step::send_continue;  // otherwise the client did not wait
    }
    if (input_.empty() || (parser_->chunked() && input_.size() < shortest_chunked_end)) return need_bytes();
    BeastError error;
    const std::string_view bytes = input_.view();
    const size_t taken = parser_->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    input_.consume(taken);
    body_received_ = parser_->received;
    if (parser_->too_large) {
      if (state_ == State::discard) {
        state_ = State::closed;
        return Step::close;
      }
      return fail(413, fmt::format("the body is longer than the limit of {} bytes", limits_.body_bytes));
    }
    if (error == http::error::need_more) {
      if (input_.size() > limits_.head_bytes) return fail(400, "a chunk's line or the trailers are too long");
      return need_bytes();
    }
    if (error) return fail(400, fmt::format("malformed HTTP body: {}", error.message()));
  }
  if (state_ == State::discard) {
    state_ = State::idle;
    return parse_head();
  }
  state_ = State::answering;
  return Step::dispatch;
}

api::HttpRequest HttpSession::take_request() { return std::move(request_); }

bool HttpSession::has_unread() const {
  return !input_.empty() || failure_ || (parser_ != nullptr && !parser_->is_done());
}

void HttpSession::answered() {
  HEDDLE_CHECK(state_ == State::answering);
  state_ = parser_->is_done() ? State::idle : State::discard;
}

}  // namespace heddle::net
