#pragma once
// A reply of a server as its bytes arrive: head, then the events of a stream, or a plain body. No I/O of its own; one
// reply an object. For the load client and `heddle chat` against a URL.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace heddle::app {

class HttpStream {
 public:
  // `on_event` gets the data of each server-sent event.
  explicit HttpStream(std::function<void(std::string_view)> on_event);
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  bool feed(std::string_view bytes);  // false: this is not HTTP
  bool finished() const;              // the whole reply was fed
  bool keep_alive() const;
  int status() const;
  const std::string& body() const { return text_; }  // what is not part of an event

 private:
  struct Parser;
  void take_events();

  std::function<void(std::string_view)> on_event_;
  std::unique_ptr<Parser> parser_;
  std::string text_;      // body bytes that do not yet make an event
  std::string unparsed_;  // bytes that the parser has not taken
};

}  // namespace heddle::app
