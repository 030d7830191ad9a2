#pragma once
// UTF-8 text that remembers, byte by byte, whether it came from the request or from the template. A value type, owned
// by whoever holds it; const access from any thread. Text is either all from one side (no heap beyond the bytes) or
// keeps the borders between the sides, so every operation that copies a piece of text keeps its origin exactly.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::text {

class TracedText {
 public:
  TracedText() = default;
  TracedText(std::string_view bytes, bool from_request) { append(bytes, from_request); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool from_request(std::size_t at) const;
  bool any_from_request() const { return !borders_.empty(); }

  void append(std::string_view bytes, bool from_request);
  void append(const TracedText& other) { append(other, 0, other.size()); }
  void append(const TracedText& other, std::size_t begin, std::size_t end);
  // Bytes derived from other[begin, end), such as its upper case: from the request if any byte of the source is.
  void append_derived(std::string_view bytes, const TracedText& other, std::size_t begin, std::size_t end);

  TracedText slice(std::size_t begin, std::size_t end) const;
  std::string take_bytes() && { return std::move(bytes_); }

  // Ascending offsets where the origin changes; text starts on the template's side, so [b0, b1) is from the request,
  // [b1, b2) is not, and so on. The last run always has its end.
  const std::vector<std::size_t>& borders() const { return borders_; }

 private:
  std::string bytes_;
  std::vector<std::size_t> borders_;
};

}  // namespace heddle::text
