#pragma once
// GPT-2's spelling of bytes: each of the 256 bytes is a printable character, so that vocabularies and merge lists are
// text. Printable Latin-1 stands for itself, the other 68 bytes for U+0100 to U+0143 in order. Pure.
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace heddle::text {

namespace detail {

// [0x144] the byte of each code point, or -1.
constexpr std::array<int16_t, 0x144> make_byte_of_alphabet() {
  std::array<int16_t, 0x144> table{};
  table.fill(-1);
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    table[static_cast<size_t>(printable ? b : next++)] = static_cast<int16_t>(b);
  }
  return table;
}
inline constexpr auto byte_of_alphabet = make_byte_of_alphabet();

}  // namespace detail

// Appends the bytes that the token spells at out and returns the new end. A token with a character outside the
// alphabet is copied as it is, like `tokenizers` does. Never longer than the token.
inline char* decode_byte_alphabet(std::string_view token, char* out) {
  char* const begin = out;
  for (size_t i = 0; i < token.size();) {
    const auto lead = static_cast<unsigned char>(token[i]);
    uint32_t c = lead;
    size_t length = 1;
    if (lead >= 0x80) {
      // All of the alphabet beyond ASCII has two bytes: C2 to C5 and one more.
      length = 2;
      c = lead >= 0xC2 && lead <= 0xC5 && i + 1 < token.size() &&
                  (static_cast<unsigned char>(token[i + 1]) & 0xC0) == 0x80
              ? (lead & 0x1Fu) << 6 | (static_cast<unsigned char>(token[i + 1]) & 0x3Fu)
              : 0x144;
    }
    if (c >= 0x144 || detail::byte_of_alphabet[c] < 0) {
      std::memcpy(begin, token.data(), token.size());
      return begin + token.size();
    }
    *out++ = static_cast<char>(detail::byte_of_alphabet[c]);
    i += length;
  }
  return out;
}

}  // namespace heddle::text
