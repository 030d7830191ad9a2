#pragma once
// Finds stop strings in text that comes in chunks. One per sequence, used by one thread. Lets text through as soon as
// it cannot be part of a stop string; of several matches the one that ends first wins, and for the same end the first
// in the list. Result does not depend on how the text was cut into chunks.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::text {

class StopStrings {
 public:
  // No empty strings (callers refuse those with a 400).
  explicit StopStrings(std::span<const std::string> stops, bool include_stop = false);

  // Appends to out what may be shown. After a match: the index of the stop string; later text is ignored.
  std::optional<size_t> feed(std::string_view text, std::string& out);
  // The end of the output without a match: releases what was held back.
  void flush(std::string& out);

  bool empty() const { return stops_.empty(); }
  std::optional<size_t> matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // [text + 1] length of the longest proper border of each prefix
    uint32_t state = 0;              // bytes of text matched by the end of what was fed
  };

  std::vector<Stop> stops_;
  bool include_stop_;
  std::optional<size_t> matched_;
  std::string held_;  // the end of the text that is a prefix of some stop string
};

}  // namespace heddle::text
