#pragma once
// Bytes on their way to the kernel, in order. Owned by one HttpConnection; loop thread only. Text is formatted straight
// into tail(); what the kernel has taken is dropped from the front. Keeps its memory between events, so a stream whose
// reader keeps up allocates nothing.
#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::net {

class Outbox {
 public:
  std::string& tail() { return text_; }
  std::string_view view() const { return std::string_view(text_).substr(taken_); }
  size_t size() const { return text_.size() - taken_; }
  bool empty() const { return size() == 0; }

  void consume(size_t n) {
    taken_ += n;
    if (taken_ == text_.size()) {
      taken_ = 0;
      text_.clear();
      if (text_.capacity() > kept_bytes) text_.shrink_to_fit();
    } else if (taken_ > text_.size() / 2) {
      // A reader that is slow but never catches up must not make the taken part grow for ever.
      text_.erase(0, taken_);
      taken_ = 0;
    }
  }

 private:
  static constexpr size_t kept_bytes = 16 * 1024;

  std::string text_;
  size_t taken_ = 0;
};

}  // namespace heddle::net
