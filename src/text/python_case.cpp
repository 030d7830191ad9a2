#include <utf8proc.h>

#include <algorithm>

#include "text/python_str.h"

namespace heddle::text::pystr {
namespace {

struct SpecialCase {
  char32_t code_point;
  const char* upper;
  const char* title;
};

// The characters whose upper or title case is more than one character, from Unicode SpecialCasing.txt (unconditional
// mappings), as {code point, upper case, title case}. Made with Python 3.11 (Unicode 14):
//   [(c, chr(c).upper(), chr(c).title()) for c in range(0x110000) if len(chr(c).upper()) > 1]
constexpr SpecialCase special_cases[] = {
    {0x00df, "\x53\x53", "\x53\x73"},
    {0x0149, "\xca\xbc\x4e", "\xca\xbc\x4e"},
    {0x01f0, "\x4a\xcc\x8c", "\x4a\xcc\x8c"},
    {0x0390, "\xce\x99\xcc\x88\xcc\x81", "\xce\x99\xcc\x88\xcc\x81"},
    {0x03b0, "\xce\xa5\xcc\x88\xcc\x81", "\xce\xa5\xcc\x88\xcc\x81"},
    {0x0587, "\xd4\xb5\xd5\x92", "\xd4\xb5\xd6\x82"},
    {0x1e96, "\x48\xcc\xb1", "\x48\xcc\xb1"},
    {0x1e97, "\x54\xcc\x88", "\x54\xcc\x88"},
    {0x1e98, "\x57\xcc\x8a", "\x57\xcc\x8a"},
    {0x1e99, "\x59\xcc\x8a", "\x59\xcc\x8a"},
    {0x1e9a, "\x41\xca\xbe", "\x41\xca\xbe"},
    {0x1f50, "\xce\xa5\xcc\x93", "\xce\xa5\xcc\x93"},
    {0x1f52, "\xce\xa5\xcc\x93\xcc\x80", "\xce\xa5\xcc\x93\xcc\x80"},
    {0x1f54, "\xce\xa5\xcc\x93\xcc\x81", "\xce\xa5\xcc\x93\xcc\x81"},
    {0x1f56, "\xce\xa5\xcc\x93\xcd\x82", "\xce\xa5\xcc\x93\xcd\x82"},
    {0x1f80, "\xe1\xbc\x88\xce\x99", "\xe1\xbe\x88"},
    {0x1f81, "\xe1\xbc\x89\xce\x99", "\xe1\xbe\x89"},
    {0x1f82, "\xe1\xbc\x8a\xce\x99", "\xe1\xbe\x8a"},
    {0x1f83, "\xe1\xbc\x8b\xce\x99", "\xe1\xbe\x8b"},
    {0x1f84, "\xe1\xbc\x8c\xce\x99", "\xe1\xbe\x8c"},
    {0x1f85, "\xe1\xbc\x8d\xce\x99", "\xe1\xbe\x8d"},
    {0x1f86, "\xe1\xbc\x8e\xce\x99", "\xe1\xbe\x8e"},
    {0x1f87, "\xe1\xbc\x8f\xce\x99", "\xe1\xbe\x8f"},
    {0x1f88, "\xe1\xbc\x88\xce\x99", "\xe1\xbe\x88"},
    {0x1f89, "\xe1\xbc\x89\xce\x99", "\xe1\xbe\x89"},
    {0x1f8a, "\xe1\xbc\x8a\xce\x99", "\xe1\xbe\x8a"},
    {0x1f8b, "\xe1\xbc\x8b\xce\x99", "\xe1\xbe\x8b"},
    {0x1f8c, "\xe1\xbc\x8c\xce\x99", "\xe1\xbe\x8c"},
    {0x1f8d, "\xe1\xbc\x8d\xce\x99", "\xe1\xbe\x8d"},
    {0x1f8e, "\xe1\xbc\x8e\xce\x99", "\xe1\xbe\x8e"},
    {0x1f8f, "\xe1\xbc\x8f\xce\x99", "\xe1\xbe\x8f"},
    {0x1f90, "\xe1\xbc\xa8\xce\x99", "\xe1\xbe\x98"},
    {0x1f91, "\xe1\xbc\xa9\xce\x99", "\xe1\xbe\x99"},
    {0x1f92, "\xe1\xbc\xaa\xce\x99", "\xe1\xbe\x9a"},
    {0x1f93, "\xe1\xbc\xab\xce\x99", "\xe1\xbe\x9b"},
    {0x1f94, "\xe1\xbc\xac\xce\x99", "\xe1\xbe\x9c"},
    {0x1f95, "\xe1\xbc\xad\xce\x99", "\xe1\xbe\x9d"},
    {0x1f96, "\xe1\xbc\xae\xce\x99", "\xe1\xbe\x9e"},
    {0x1f97, "\xe1\xbc\xaf\xce\x99", "\xe1\xbe\x9f"},
    {0x1f98, "\xe1\xbc\xa8\xce\x99", "\xe1\xbe\x98"},
    {0x1f99, "\xe1\xbc\xa9\xce\x99", "\xe1\xbe\x99"},
    {0x1f9a, "\xe1\xbc\xaa\xce\x99", "\xe1\xbe\x9a"},
    {0x1f9b, "\xe1\xbc\xab\xce\x99", "\xe1\xbe\x9b"},
    {0x1f9c, "\xe1\xbc\xac\xce\x99", "\xe1\xbe\x9c"},
    {0x1f9d, "\xe1\xbc\xad\xce\x99", "\xe1\xbe\x9d"},
    {0x1f9e, "\xe1\xbc\xae\xce\x99", "\xe1\xbe\x9e"},
    {0x1f9f, "\xe1\xbc\xaf\xce\x99", "\xe1\xbe\x9f"},
    {0x1fa0, "\xe1\xbd\xa8\xce\x99", "\xe1\xbe\xa8"},
    {0x1fa1, "\xe1\xbd\xa9\xce\x99", "\xe1\xbe\xa9"},
    {0x1fa2, "\xe1\xbd\xaa\xce\x99", "\xe1\xbe\xaa"},
    {0x1fa3, "\xe1\xbd\xab\xce\x99", "\xe1\xbe\xab"},
    {0x1fa4, "\xe1\xbd\xac\xce\x99", "\xe1\xbe\xac"},
    {0x1fa5, "\xe1\xbd\xad\xce\x99", "\xe1\xbe\xad"},
    {0x1fa6, "\xe1\xbd\xae\xce\x99", "\xe1\xbe\xae"},
    {0x1fa7, "\xe1\xbd\xaf\xce\x99", "\xe1\xbe\xaf"},
    {0x1fa8, "\xe1\xbd\xa8\xce\x99", "\xe1\xbe\xa8"},
    {0x1fa9, "\xe1\xbd\xa9\xce\x99", "\xe1\xbe\xa9"},
    {0x1faa, "\xe1\xbd\xaa\xce\x99", "\xe1\xbe\xaa"},
    {0x1fab, "\xe1\xbd\xab\xce\x99", "\xe1\xbe\xab"},
    {0x1fac, "\xe1\xbd\xac\xce\x99", "\xe1\xbe\xac"},
    {0x1fad, "\xe1\xbd\xad\xce\x99", "\xe1\xbe\xad"},
    {0x1fae, "\xe1\xbd\xae\xce\x99", "\xe1\xbe\xae"},
    {0x1faf, "\xe1\xbd\xaf\xce\x99", "\xe1\xbe\xaf"},
    {0x1fb2, "\xe1\xbe\xba\xce\x99", "\xe1\xbe\xba\xcd\x85"},
    {0x1fb3, "\xce\x91\xce\x99", "\xe1\xbe\xbc"},
    {0x1fb4, "\xce\x86\xce\x99", "\xce\x86\xcd\x85"},
    {0x1fb6, "\xce\x91\xcd\x82", "\xce\x91\xcd\x82"},
    {0x1fb7, "\xce\x91\xcd\x82\xce\x99", "\xce\x91\xcd\x82\xcd\x85"},
    {0x1fbc, "\xce\x91\xce\x99", "\xe1\xbe\xbc"},
    {0x1fc2, "\xe1\xbf\x8a\xce\x99", "\xe1\xbf\x8a\xcd\x85"},
    {0x1fc3, "\xce\x97\xce\x99", "\xe1\xbf\x8c"},
    {0x1fc4, "\xce\x89\xce\x99", "\xce\x89\xcd\x85"},
    {0x1fc6, "\xce\x97\xcd\x82", "\xce\x97\xcd\x82"},
    {0x1fc7, "\xce\x97\xcd\x82\xce\x99", "\xce\x97\xcd\x82\xcd\x85"},
    {0x1fcc, "\xce\x97\xce\x99", "\xe1\xbf\x8c"},
    {0x1fd2, "\xce\x99\xcc\x88\xcc\x80", "\xce\x99\xcc\x88\xcc\x80"},
    {0x1fd3, "\xce\x99\xcc\x88\xcc\x81", "\xce\x99\xcc\x88\xcc\x81"},
    {0x1fd6, "\xce\x99\xcd\x82", "\xce\x99\xcd\x82"},
    {0x1fd7, "\xce\x99\xcc\x88\xcd\x82", "\xce\x99\xcc\x88\xcd\x82"},
    {0x1fe2, "\xce\xa5\xcc\x88\xcc\x80", "\xce\xa5\xcc\x88\xcc\x80"},
    {0x1fe3, "\xce\xa5\xcc\x88\xcc\x81", "\xce\xa5\xcc\x88\xcc\x81"},
    {0x1fe4, "\xce\xa1\xcc\x93", "\xce\xa1\xcc\x93"},
    {0x1fe6, "\xce\xa5\xcd\x82", "\xce\xa5\xcd\x82"},
    {0x1fe7, "\xce\xa5\xcc\x88\xcd\x82", "\xce\xa5\xcc\x88\xcd\x82"},
    {0x1ff2, "\xe1\xbf\xba\xce\x99", "\xe1\xbf\xba\xcd\x85"},
    {0x1ff3, "\xce\xa9\xce\x99", "\xe1\xbf\xbc"},
    {0x1ff4, "\xce\x8f\xce\x99", "\xce\x8f\xcd\x85"},
    {0x1ff6, "\xce\xa9\xcd\x82", "\xce\xa9\xcd\x82"},
    {0x1ff7, "\xce\xa9\xcd\x82\xce\x99", "\xce\xa9\xcd\x82\xcd\x85"},
    {0x1ffc, "\xce\xa9\xce\x99", "\xe1\xbf\xbc"},
    {0xfb00, "\x46\x46", "\x46\x66"},
    {0xfb01, "\x46\x49", "\x46\x69"},
    {0xfb02, "\x46\x4c", "\x46\x6c"},
    {0xfb03, "\x46\x46\x49", "\x46\x66\x69"},
    {0xfb04, "\x46\x46\x4c", "\x46\x66\x6c"},
    {0xfb05, "\x53\x54", "\x53\x74"},
    {0xfb06, "\x53\x54", "\x53\x74"},
    {0xfb13, "\xd5\x84\xd5\x86", "\xd5\x84\xd5\xb6"},
    {0xfb14, "\xd5\x84\xd4\xb5", "\xd5\x84\xd5\xa5"},
    {0xfb15, "\xd5\x84\xd4\xbb", "\xd5\x84\xd5\xab"},
    {0xfb16, "\xd5\x8e\xd5\x86", "\xd5\x8e\xd5\xb6"},
    {0xfb17, "\xd5\x84\xd4\xbd", "\xd5\x84\xd5\xad"},
};

const SpecialCase* special_case(char32_t c) {
  const auto found =
      std::lower_bound(std::begin(special_cases), std::end(special_cases), c,
                       [](const SpecialCase& entry, char32_t wanted) { return entry.code_point < wanted; });
  return found != std::end(special_cases) && found->code_point == c ? found : nullptr;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

// Characters that the final sigma rule looks through: marks, modifiers and the apostrophes.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
             c == 0x2027 || c == 0x0387 || c == 0x055F || c == 0x05F4 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 ||
             c == 0xFF07 || c == 0xFF0E || c == 0xFF1A;
  }
}

void put_upper(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->upper;
  } else {
    encode(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void put_title(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) {
    out += special->title;
  } else {
    encode(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// A capital sigma at the end of a word becomes the final small sigma.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end) {
  bool cased_before = false;
  for (std::size_t at = begin; at > 0;) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    std::size_t next = at;
    const char32_t c = decode(text, next);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  for (std::size_t at = end; at < text.size();) {
    const char32_t c = decode(text, at);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void put_lower(std::string_view text, std::size_t begin, std::size_t end, char32_t c, std::string& out) {
  if (c == 0x0130) {
    out += "i\xCC\x87";
  } else if (c == 0x03A3) {
    encode(ends_word(text, begin, end) ? 0x03C2 : 0x03C3, out);
  } else {
    encode(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// Digits beyond category Nd: superscripts, circled and other special forms, {first, last}.
constexpr char32_t special_digits[][2] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

bool is_numeric(char32_t c) {
  const utf8proc_category_t is = category(c);
  return is == UTF8PROC_CATEGORY_ND || is == UTF8PROC_CATEGORY_NL || is == UTF8PROC_CATEGORY_NO;
}

bool is_identifier(std::string_view text) {
  bool first = true;
  for (std::size_t at = 0; at < text.size(); first = false) {
    const char32_t c = decode(text, at);
    const utf8proc_category_t is = category(c);
    const bool starts = c == '_' || is_alphabetic(c) || is == UTF8PROC_CATEGORY_NL;
    const bool goes_on = is == UTF8PROC_CATEGORY_MN || is == UTF8PROC_CATEGORY_MC || is == UTF8PROC_CATEGORY_ND ||
                         is == UTF8PROC_CATEGORY_PC;
    if (!starts && (first || !goes_on)) return false;
  }
  return !first;
}

// Upper case only after an uncased character, lower case only after a cased one, and at least one cased character.
bool is_title(std::string_view text) {
  bool any = false;
  bool after_cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = decode(text, at);
    const bool big = is_upper(c) || category(c) == UTF8PROC_CATEGORY_LT;
    if (big ? after_cased : is_lower(c) && !after_cased) return false;
    after_cased = big || is_lower(c);
    any = any || after_cased;
  }
  return any;
}

}  // namespace

bool is_alphabetic(char32_t c) {
  const utf8proc_category_t is = category(c);
  return is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  if (category(c) == UTF8PROC_CATEGORY_ND) return true;
  return std::any_of(std::begin(special_digits), std::end(special_digits),
                     [c](const auto& range) { return c >= range[0] && c <= range[1]; });
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

TracedText change_case(const TracedText& text, Case how) {
  TracedText out;
  const std::string_view bytes = text.bytes();
  bool start = true;  // of the text (capitalize) or of a word (title)
  std::string piece;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = decode(bytes, at);
    piece.clear();
    const bool up = how == Case::upper || (how == Case::swap && is_lower(c));
    const bool keep = how == Case::swap && !is_lower(c) && !is_upper(c);
    if (keep) {
      piece.append(bytes.substr(begin, at - begin));
    } else if (up) {
      put_upper(c, piece);
    } else if (start && (how == Case::capitalize || how == Case::title)) {
      put_title(c, piece);
    } else {
      put_lower(bytes, begin, at, c, piece);
    }
    start = how == Case::title && !is_cased(c);
    out.append_derived(piece, text, begin, at);
  }
  return out;
}

bool is_class(std::string_view text, Class which) {
  if (which == Class::identifier) return is_identifier(text);
  if (which == Class::title) return is_title(text);
  if (text.empty()) return which == Class::ascii || which == Class::printable;
  bool cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = decode(text, at);
    bool fits = true;
    switch (which) {
      case Class::alpha:
        fits = is_alphabetic(c);
        break;
      case Class::alnum:
        fits = is_alphabetic(c) || is_digit(c) || is_numeric(c);
        break;
      case Class::digit:
        fits = is_digit(c);
        break;
      case Class::decimal:
        fits = category(c) == UTF8PROC_CATEGORY_ND;
        break;
      case Class::numeric:
        fits = is_digit(c) || is_numeric(c);
        break;
      case Class::space:
        fits = is_space(c);
        break;
      case Class::upper:
        fits = !is_lower(c) && category(c) != UTF8PROC_CATEGORY_LT;
        cased = cased || is_upper(c);
        break;
      case Class::lower:
        fits = !is_upper(c) && category(c) != UTF8PROC_CATEGORY_LT;
        cased = cased || is_lower(c);
        break;
      case Class::ascii:
        fits = c < 0x80;
        break;
      case Class::printable:
        fits = is_printable(c);
        break;
      case Class::title:
      case Class::identifier:
        break;  // handled above
    }
    if (!fits) return false;
  }
  return (which != Class::upper && which != Class::lower) || cased;
}

}  // namespace heddle::text::pystr
