#pragma once
// UTF-8 by the rule of Unicode 3.9 (table 3-7) and the WHATWG: an ill-formed part is the longest prefix of some
// character, at least one byte, and reads as one U+FFFD. Same as bytes.decode("utf-8", "replace") in Python. Pure.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind : uint8_t {
    character,
    ill_formed,
    incomplete,  // the text ends here, and more bytes could make it a character
  };
  Kind kind;
  uint8_t length;  // bytes, >= 1
};

// What starts at begin; begin < end.
Utf8Step utf8_step(const char* begin, const char* end);

// Bytes of text before the first ill-formed or incomplete part.
size_t utf8_valid_prefix(std::string_view text);

// Appends text with every ill-formed part, and an incomplete end, as U+FFFD.
void append_utf8_replaced(std::string_view text, std::string& out);

// The code point at p and its length, for text known to be valid.
inline uint32_t utf8_decode(const char* p, size_t& length) {
  const auto at = [p](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return length = 1, lead;
  if (lead < 0xE0) return length = 2, (lead & 0x1F) << 6 | (at(1) & 0x3F);
  if (lead < 0xF0) return length = 3, (lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
  return length = 4, (lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
}

// Bytes of the character that starts with this byte, for text known to be valid.
inline size_t utf8_length(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

inline bool utf8_is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace heddle::text
