#include "app/http_stream.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <limits>
#include <utility>

namespace heddle::app {
namespace http = boost::beast::http;

// Hands the body on as it comes, whatever the framing.
struct HttpStream::Parser {
  struct Body {
    struct value_type {
      std::string* text = nullptr;
    };
    class reader {
     public:
      template <bool isRequest, class Fields>
      reader(http::header<isRequest, Fields>&, value_type& value) : value_(value) {}
      void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
      template <class Buffers>
      size_t put(const Buffers& buffers, boost::system::error_code& error) {
        error = {};
        size_t size = 0;
        for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
             ++it) {
          value_.text->append(static_cast<const char*>(it->data()), it->size());
          size += it->size();
        }
        return size;
      }
      void finish(boost::system::error_code& error) { error = {}; }

     private:
      value_type& value_;
    };
  };
  http::response_parser<Body> http;
};

HttpStream::HttpStream(std::function<void(std::string_view)> on_event)
    : on_event_(std::move(on_event)), parser_(std::make_unique<Parser>()) {
  parser_->http.eager(true);
  parser_->http.body_limit(std::numeric_limits<uint64_t>::max());
  parser_->http.get().body().text = &text_;
}

HttpStream::~HttpStream() = default;

bool HttpStream::feed(std::string_view bytes) {
  unparsed_.append(bytes);
  boost::system::error_code error;
  while (!unparsed_.empty() && !parser_->http.is_done()) {
    const size_t used = parser_->http.put(boost::asio::buffer(unparsed_), error);
    unparsed_.erase(0, used);
    if (error == http::error::need_more) break;
    if (error) return false;
  }
  if (parser_->http.is_header_done() && status() == 200) take_events();
  return true;
}

void HttpStream::take_events() {
  size_t begin = 0;
  for (size_t end; (end = text_.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
    std::string_view event = std::string_view(text_).substr(begin, end - begin);
    if (!event.starts_with("data:")) continue;
    event.remove_prefix(5);
    if (event.starts_with(' ')) event.remove_prefix(1);
    on_event_(event);
  }
  text_.erase(0, begin);
}

bool HttpStream::finished() const { return parser_->http.is_done(); }
bool HttpStream::keep_alive() const { return parser_->http.keep_alive(); }
int HttpStream::status() const { return static_cast<int>(parser_->http.get().result_int()); }

}  // namespace heddle::app
