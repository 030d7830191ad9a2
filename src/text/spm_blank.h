#pragma once
// SentencePiece spells a blank as U+2581, and reads U+2581 in a text as a blank. Here blanks are blanks throughout: in
// the vocabulary, in texts and in what is matched. Pure.
#include <cstddef>
#include <string>
#include <string_view>

namespace heddle::text {

inline constexpr std::string_view kSpmBlank = "\xE2\x96\x81";

inline bool has_spm_blank(std::string_view text) { return text.find(kSpmBlank) != std::string_view::npos; }

// In text from `from` on.
inline void replace_spm_blanks(std::string& text, size_t from = 0) {
  size_t out = text.find(kSpmBlank, from);
  if (out == std::string::npos) return;
  for (size_t at = out; at < text.size();) {
    if (text.compare(at, kSpmBlank.size(), kSpmBlank) == 0) {
      text[out++] = ' ';
      at += kSpmBlank.size();
    } else {
      text[out++] = text[at++];
    }
  }
  text.resize(out);
}

}  // namespace heddle::text
