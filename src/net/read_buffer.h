#pragma once
// Bytes read and not yet consumed, in one piece. Owned by one HttpSession; loop thread only. Keeps no more memory than
// its content and the room asked for, so that an idle connection is cheap.
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace heddle::net {

class ReadBuffer {
 public:
  std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  // Room for `n` more bytes behind the content. Moves the content, so views taken before are void; nobody may be
  // reading into an earlier room.
  std::span<char> prepare(size_t n) {
    if (empty()) begin_ = end_ = 0;
    const size_t needed = size() + n;
    if (needed > capacity_ || (empty() && capacity_ > 4 * n)) {
      // make_unique would clear memory that the kernel is about to fill.
      auto fresh = std::make_unique_for_overwrite<char[]>(needed);
      if (!empty()) std::memcpy(fresh.get(), data_.get() + begin_, size());
      data_ = std::move(fresh);
      capacity_ = needed;
    } else if (begin_ > 0 && end_ + n > capacity_) {
      std::memmove(data_.get(), data_.get() + begin_, size());
    } else {
      return {data_.get() + end_, n};
    }
    end_ -= begin_;
    begin_ = 0;
    return {data_.get() + end_, n};
  }
  void commit(size_t n) { end_ += n; }

  // Moves nothing: a read into prepared room may be under way.
  void consume(size_t n) { begin_ += n; }

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace heddle::net
