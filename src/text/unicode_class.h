#pragma once
// What kind of character a code point is, in the version of Unicode that Hugging Face `tokenizers` has, since its
// regular expressions are what the pre-tokenizers must equal. A flat table in zero pages, filled from ranges at first
// use (about 0.1 ms); any thread.
#include <cstdint>

namespace heddle::text {

namespace unicode {
inline constexpr uint8_t other = 0;
inline constexpr uint8_t letter = 1;      // \p{L}
inline constexpr uint8_t number = 2;      // \p{N}
inline constexpr uint8_t space = 4;       // \s
inline constexpr uint8_t digit_only = 8;  // a digit for the Digits pre-tokenizer, `other` for the regular expressions
inline constexpr uint8_t nfc_open = 16;   // a text without such a character is its own NFC form
inline constexpr uint8_t nfc_first = 32;  // can change when an open character follows

inline constexpr uint8_t kinds = letter | number | space;
}  // namespace unicode

// [0x110000] sets of the bits above.
const uint8_t* unicode_classes();

}  // namespace heddle::text
