#include "text/stop_strings.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::text {

StopStrings::StopStrings(std::span<const std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (const std::string& text : stops) {
    HEDDLE_CHECK(!text.empty());
    Stop stop{.text = text, .fallback = std::vector<uint32_t>(text.size() + 1, 0)};
    // Knuth-Morris-Pratt's table.
    for (uint32_t i = 1, border = 0; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = stop.fallback[border];
      if (text[i] == text[border]) ++border;
      stop.fallback[i + 1] = border;
    }
    stops_.push_back(std::move(stop));
  }
}

std::optional<size_t> StopStrings::feed(std::string_view text, std::string& out) {
  if (matched_) return matched_;
  if (stops_.empty()) {
    out.append(text);
    return std::nullopt;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    for (size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      while (stop.state > 0 && stop.text[stop.state] != text[i]) stop.state = stop.fallback[stop.state];
      if (stop.text[stop.state] == text[i]) ++stop.state;
      if (stop.state < stop.text.size()) continue;
      matched_ = s;
      held_.append(text.substr(0, i + 1));
      if (!include_stop_) held_.resize(held_.size() - stop.text.size());
      out.append(held_);
      held_.clear();
      return matched_;
    }
  }
  held_.append(text);
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max<size_t>(keep, stop.state);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return std::nullopt;
}

void StopStrings::flush(std::string& out) {
  out.append(held_);
  held_.clear();
  for (Stop& stop : stops_) stop.state = 0;
}

}  // namespace heddle::text
