#pragma once
// Unicode normalisation form C, as Qwen's tokenizer applies it to text. Pure.
#include <string>
#include <string_view>

namespace heddle::text {

// True for almost all text, found without normalising it: no character that NFC could touch. Text must be valid UTF-8.
bool surely_nfc(std::string_view text);

// Text must be valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace heddle::text
