#include "text/python_str.h"

#include <algorithm>

namespace heddle::text::pystr {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Start of the character that ends before `at`.
std::size_t previous(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

bool contains(std::string_view characters, std::string_view one) {
  return characters.find(one) != std::string_view::npos;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool strips(std::string_view text, std::size_t at, std::size_t end, std::optional<std::string_view> characters) {
  if (characters) return contains(*characters, text.substr(at, end - at));
  return is_space(decode(text, at));
}

std::vector<TracedText> split_space(const TracedText& text, long max) {
  std::vector<TracedText> parts;
  const std::string_view bytes = text.bytes();
  std::size_t at = 0;
  while (true) {
    std::size_t next = at;
    while (at < bytes.size() && is_space(decode(bytes, next))) at = next;
    if (at >= bytes.size()) break;
    if (max >= 0 && static_cast<long>(parts.size()) >= max) {
      parts.push_back(text.slice(at, bytes.size()));  // white space behind it stays
      break;
    }
    const std::size_t begin = at;
    next = at;
    while (at < bytes.size() && !is_space(decode(bytes, next))) at = next;
    parts.push_back(text.slice(begin, at));
  }
  return parts;
}

std::vector<TracedText> rsplit_space(const TracedText& text, long max) {
  std::vector<TracedText> parts;
  const std::string_view bytes = text.bytes();
  const auto space_before = [&](std::size_t at) {
    std::size_t begin = previous(bytes, at);
    return is_space(decode(bytes, begin));
  };
  std::size_t end = bytes.size();
  while (true) {
    while (end > 0 && space_before(end)) end = previous(bytes, end);
    if (end == 0) break;
    if (max >= 0 && static_cast<long>(parts.size()) >= max) {
      parts.push_back(text.slice(0, end));  // white space before it stays
      break;
    }
    std::size_t begin = end;
    while (begin > 0 && !space_before(begin)) begin = previous(bytes, begin);
    parts.push_back(text.slice(begin, end));
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    std::size_t more = 0;
    unsigned low = 0x80, high = 0xBF;  // of the second byte: no overlong form, surrogate, or value past U+10FFFF
    if (lead < 0x80) {
      ++at;
      continue;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    if (text.size() - at <= more) return false;
    const auto second = static_cast<unsigned char>(text[at + 1]);
    if (second < low || second > high) return false;
    for (std::size_t i = 2; i <= more; ++i) {
      if (!continues(text[at + i])) return false;
    }
    at += more + 1;
  }
  return true;
}

char32_t decode(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(at);
  if (lead < 0x80) return at += 1, lead;
  if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  if (lead < 0xF0) return at += 3, (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
}

void encode(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

std::size_t length(std::string_view text) {
  std::size_t n = 0;
  for (const char byte : text) n += !continues(byte);
  return n;
}

std::size_t offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    ++at;
    while (at < text.size() && continues(text[at])) ++at;
    --index;
  }
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

TracedText strip(const TracedText& text, Side side, std::optional<std::string_view> characters) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (side != Side::right && begin < end) {
    const std::size_t next = begin + offset(bytes.substr(begin, 4), 1);
    if (!strips(bytes, begin, next, characters)) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    const std::size_t last = previous(bytes, end);
    if (!strips(bytes, last, end, characters)) break;
    end = last;
  }
  return text.slice(begin, end);
}

std::vector<TracedText> split(const TracedText& text, std::optional<std::string_view> separator, long max) {
  if (!separator) return split_space(text, max);
  std::vector<TracedText> parts;
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  while (max < 0 || static_cast<long>(parts.size()) < max) {
    const std::size_t found = bytes.find(*separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.slice(begin, bytes.size()));
  return parts;
}

std::vector<TracedText> rsplit(const TracedText& text, std::optional<std::string_view> separator, long max) {
  if (!separator) return rsplit_space(text, max);
  std::vector<TracedText> parts;
  const std::string_view bytes = text.bytes();
  std::size_t end = bytes.size();
  while (max < 0 || static_cast<long>(parts.size()) < max) {
    if (end < separator->size()) break;
    const std::size_t found = bytes.rfind(*separator, end - separator->size());
    if (found == std::string_view::npos) break;
    parts.push_back(text.slice(found + separator->size(), end));
    end = found;
  }
  parts.push_back(text.slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<TracedText> split_lines(const TracedText& text, bool keep_ends) {
  std::vector<TracedText> lines;
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t c = decode(bytes, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

TracedText replace(const TracedText& text, std::string_view from, const TracedText& to, long max) {
  TracedText out;
  const std::string_view bytes = text.bytes();
  std::size_t copied = 0;
  std::size_t at = 0;
  for (long n = 0; max < 0 || n < max; ++n) {
    const std::size_t found = from.empty() ? at : bytes.find(from, at);
    if (found == std::string_view::npos || found > bytes.size()) break;
    out.append(text, copied, found);
    out.append(to);
    copied = found + from.size();
    // An empty pattern matches between all characters and at both ends.
    at = from.empty() ? (found == bytes.size() ? bytes.size() + 1 : found + offset(bytes.substr(found, 4), 1)) : copied;
  }
  out.append(text, copied, bytes.size());
  return out;
}

std::size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return length(text) + 1;
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

}  // namespace heddle::text::pystr
