#include "text/utf8.h"

#include <cstring>

namespace heddle::text {

Utf8Step utf8_step(const char* begin, const char* end) {
  using Kind = Utf8Step::Kind;
  const auto lead = static_cast<unsigned char>(*begin);
  if (lead < 0x80) return {Kind::character, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::ill_formed, 1};
  const int needed = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  // Only the second byte has narrower limits: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i <= needed; ++i) {
    if (begin + i == end) return {Kind::incomplete, static_cast<uint8_t>(i)};
    const auto byte = static_cast<unsigned char>(begin[i]);
    if (byte < low || byte > high) return {Kind::ill_formed, static_cast<uint8_t>(i)};
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::character, static_cast<uint8_t>(needed + 1)};
}

size_t utf8_valid_prefix(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    while (end - p >= 8) {
      uint64_t chunk;
      std::memcpy(&chunk, p, 8);
      if (chunk & 0x8080808080808080u) break;
      p += 8;
    }
    if (p == end) break;
    const Utf8Step step = utf8_step(p, end);
    if (step.kind != Utf8Step::Kind::character) break;
    p += step.length;
  }
  return static_cast<size_t>(p - text.data());
}

void append_utf8_replaced(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.append(kReplacement);
    text.remove_prefix(utf8_step(text.data(), text.data() + text.size()).length);
  }
}

}  // namespace heddle::text
