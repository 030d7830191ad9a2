#include "text/nfc.h"

#include <utf8proc.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "base/check.h"
#include "text/unicode_class.h"
#include "text/utf8.h"

namespace heddle::text {

namespace {

void append_nfc(std::string_view text, std::vector<utf8proc_int32_t>& buffer, std::string& out) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t needed = utf8proc_decompose(bytes, size, nullptr, 0, options);
  HEDDLE_CHECK_OP(needed, >=, 0);  // the text is valid
  buffer.resize(static_cast<size_t>(needed) + 1);
  utf8proc_decompose(bytes, size, buffer.data(), needed, options);
  const utf8proc_ssize_t length = utf8proc_normalize_utf32(buffer.data(), needed, options);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    utf8proc_uint8_t encoded[4];
    const utf8proc_ssize_t n = utf8proc_encode_char(buffer[static_cast<size_t>(i)], encoded);
    out.append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(n));
  }
}

}  // namespace

bool surely_nfc(std::string_view text) {
  const uint8_t* classes = unicode_classes();
  for (size_t i = 0; i < text.size();) {
    // Nothing below U+0300 is open: lead bytes up to 0xCB.
    if (static_cast<unsigned char>(text[i]) < 0xCC) {
      ++i;
      continue;
    }
    size_t length;
    if (classes[utf8_decode(text.data() + i, length)] & unicode::nfc_open) return false;
    i += length;
  }
  return true;
}

// Only stretches of open characters are normalised, each with the character before it if that can compose. This is
// fast, and it keeps the version of Unicode that the table was made from: marks that are newer stay where they are.
std::string to_nfc(std::string_view text) {
  const uint8_t* classes = unicode_classes();
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> buffer;
  size_t done = 0;   // everything before is in out
  size_t begin = 0;  // of the stretch, should the next character be open
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const uint8_t bits = classes[utf8_decode(text.data() + i, length)];
    if ((bits & unicode::nfc_open) == 0) {
      begin = (bits & unicode::nfc_first) != 0 ? i : i + length;
      i += length;
      continue;
    }
    out.append(text.substr(done, begin - done));
    do {
      i += length;
    } while (i < text.size() && (classes[utf8_decode(text.data() + i, length)] & unicode::nfc_open) != 0);
    append_nfc(text.substr(begin, i - begin), buffer, out);
    done = begin = i;
  }
  out.append(text.substr(done));
  return out;
}

}  // namespace heddle::text
