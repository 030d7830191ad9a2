#include "api/json_text.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "text/utf8.h"

namespace heddle::api {
namespace {

constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\' && c != 0x7F;
  return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain();

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t i = 0;
  while (i < text.size()) {
    size_t run = i;
    while (run < text.size() && kPlain[static_cast<uint8_t>(text[run])]) ++run;
    out.append(text, i, run - i);
    i = run;
    if (i == text.size()) break;
    const char c = text[i];
    switch (c) {
      case '"':
        out += "\\\"";
        ++i;
        continue;
      case '\\':
        out += "\\\\";
        ++i;
        continue;
      case '\n':
        out += "\\n";
        ++i;
        continue;
      case '\r':
        out += "\\r";
        ++i;
        continue;
      case '\t':
        out += "\\t";
        ++i;
        continue;
      default:
        break;
    }
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[static_cast<uint8_t>(c) & 15];
      ++i;
      continue;
    }
    const text::Utf8Step step = text::utf8_step(text.data() + i, text.data() + text.size());
    if (step.kind == text::Utf8Step::Kind::character)
      out.append(text, i, step.length);
    else
      out += text::kReplacement;
    i += step.length;
  }
  out += '"';
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace heddle::api
