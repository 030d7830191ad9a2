#include "text/traced_text.h"

#include <algorithm>

namespace heddle::text {

bool TracedText::from_request(std::size_t at) const {
  const auto next = std::upper_bound(borders_.begin(), borders_.end(), at);
  return (next - borders_.begin()) % 2 == 1;
}

void TracedText::append(std::string_view bytes, bool from_request) {
  if (bytes.empty()) return;
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (!from_request) return;
  if (!borders_.empty() && borders_.back() == begin) {
    borders_.back() = bytes_.size();
  } else {
    borders_.push_back(begin);
    borders_.push_back(bytes_.size());
  }
}

void TracedText::append(const TracedText& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const std::string_view source = other.bytes_;
  if (other.borders_.empty()) return append(source.substr(begin, end - begin), false);
  auto next = std::upper_bound(other.borders_.begin(), other.borders_.end(), begin);
  bool request = (next - other.borders_.begin()) % 2 == 1;
  for (std::size_t at = begin; at < end; request = !request) {
    const std::size_t stop = next == other.borders_.end() ? end : std::min(end, *next++);
    append(source.substr(at, stop - at), request);
    at = stop;
  }
}

void TracedText::append_derived(std::string_view bytes, const TracedText& other, std::size_t begin, std::size_t end) {
  bool request = false;
  if (!other.borders_.empty() && begin < end) {
    const auto next = std::upper_bound(other.borders_.begin(), other.borders_.end(), begin);
    request = (next - other.borders_.begin()) % 2 == 1 || (next != other.borders_.end() && *next < end);
  }
  append(bytes, request);
}

TracedText TracedText::slice(std::size_t begin, std::size_t end) const {
  TracedText out;
  out.append(*this, begin, end);
  return out;
}

}  // namespace heddle::text
