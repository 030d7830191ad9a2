#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_word(std::string_view text, std::size_t at, std::size_t& next) {
  next = at;
  const char32_t c = pystr::decode(text, next);
  if (c < 0x80) return is_digit(text[at]) || (c | 0x20) - 'a' < 26 || c == '_';
  if (pystr::is_class(text.substr(at, next - at), pystr::Class::alnum)) return true;
  std::string name("a");  // marks may go on a name, though not begin one
  name.append(text.substr(at, next - at));
  return pystr::is_class(name, pystr::Class::identifier);
}

std::string with_unix_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size() && error_.empty()) root();
    if (!error_.empty()) return fail(fmt::format("chat template line {}: {}", line_, error_));
    put(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  void put(TokenKind kind, std::string_view text = {}) { tokens_.push_back({kind, line_, std::string(text), {}}); }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  bool starts(std::size_t at, std::string_view what) const {
    return text_.substr(std::min(at, text_.size())).starts_with(what);
  }

  std::size_t behind_space(std::size_t at) const {
    for (std::size_t next = at; at < text_.size() && pystr::is_space(pystr::decode(text_, next));) at = next;
    return at;
  }

  bool all_space(std::size_t begin, std::size_t end) const { return behind_space(begin) >= end; }

  // Text, then the opening of a comment, a print or a block.
  void root() {
    std::size_t open = at_;
    while (true) {
      open = text_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= text_.size()) {
        put(TokenKind::data, text_.substr(at_));
        return advance(text_.size());
      }
      if (text_[open + 1] == '%' || text_[open + 1] == '{' || text_[open + 1] == '#') break;
      ++open;
    }
    const char kind = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
    data(open, sign, kind != '{');
    if (!error_.empty()) return;
    const std::size_t raw = kind == '%' ? raw_begin(open) : 0;
    if (raw != 0) return raw_block(raw);
    advance(open + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') return comment();
    inside(kind == '%');
  }

  void data(std::size_t end, char sign, bool strips_line) {
    std::size_t stop = end;
    if (sign == '-') {
      while (stop > at_) {
        std::size_t last = stop - 1;
        while (last > at_ && (static_cast<unsigned char>(text_[last]) & 0xC0) == 0x80) --last;
        std::size_t next = last;
        if (!pystr::is_space(pystr::decode(text_, next))) break;
        stop = last;
      }
    } else if (sign != '+' && strips_line) {
      const std::size_t newline = end > at_ ? text_.rfind('\n', end - 1) : std::string_view::npos;
      const bool inside_text = newline != std::string_view::npos && newline >= at_;
      const std::size_t line = inside_text ? newline + 1 : at_;
      if ((inside_text || line_starting_) && all_space(line, end)) stop = line;
    }
    if (stop > at_) put(TokenKind::data, text_.substr(at_, stop - at_));
    advance(end);
  }

  // The end of "{% raw %}" that begins at `open`, or 0.
  std::size_t raw_begin(std::size_t open) const {
    std::size_t at = open + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at = behind_space(at);
    if (!starts(at, "raw")) return 0;
    at = behind_space(at + 3);
    if (starts(at, "-%}")) return behind_space(at + 3);
    return starts(at, "%}") ? at + 2 : 0;
  }

  void raw_block(std::size_t begin) {
    advance(begin);
    line_starting_ = text_[begin - 1] == '\n';
    for (std::size_t open = text_.find("{%", at_); open != std::string_view::npos; open = text_.find("{%", open + 1)) {
      std::size_t at = open + 2;
      const char sign = at < text_.size() ? text_[at] : '\0';
      if (sign == '-' || sign == '+') ++at;
      at = behind_space(at);
      if (!starts(at, "endraw")) continue;
      const std::size_t close = tag_end(behind_space(at + 6), "%}", true);
      if (close == 0) continue;
      data(open, sign, true);
      return finish(close);
    }
    if (at_ < text_.size()) error_ = "missing end of raw block";
  }

  void comment() {
    for (std::size_t at = text_.find('#', at_); at != std::string_view::npos; at = text_.find('#', at + 1)) {
      if (!starts(at, "#}")) continue;
      const char before = at > at_ ? text_[at - 1] : '\0';
      return finish(tag_end(before == '-' || before == '+' ? at - 1 : at, "#}", true));
    }
    if (at_ < text_.size()) error_ = "missing end of comment";  // Jinja2 lets an empty one go
  }

  // The end of a closing tag at `at`, with the white space that it swallows; 0 if there is none.
  std::size_t tag_end(std::size_t at, std::string_view tag, bool trims_newline) const {
    if (trims_newline && starts(at, "+") && starts(at + 1, tag)) return at + 1 + tag.size();
    if (starts(at, "-") && starts(at + 1, tag)) return behind_space(at + 1 + tag.size());
    if (!starts(at, tag)) return 0;
    const std::size_t end = at + tag.size();
    return trims_newline && starts(end, "\n") ? end + 1 : end;
  }

  void finish(std::size_t end) {
    advance(end);
    line_starting_ = end > 0 && text_[end - 1] == '\n';
  }

  void inside(bool block) {
    put(block ? TokenKind::block_begin : TokenKind::print_begin);
    std::string brackets;
    while (error_.empty()) {
      advance(behind_space(at_));
      if (at_ >= text_.size()) {
        error_ = block ? "missing '%}'" : "missing '}}'";
        return;
      }
      if (brackets.empty()) {
        if (const std::size_t end = tag_end(at_, block ? "%}" : "}}", block)) {
          put(block ? TokenKind::block_end : TokenKind::print_end);
          return finish(end);
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = text_[at_];
    std::size_t next = at_;
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    if (is_word(text_, at_, next)) {
      std::size_t end = next;
      while (end < text_.size() && is_word(text_, end, next)) end = next;
      const std::string_view name = text_.substr(at_, end - at_);
      if (!pystr::is_class(name, pystr::Class::identifier)) {
        error_ = fmt::format("invalid identifier '{}'", name);
        return;
      }
      put(TokenKind::name, name);
      return advance(end);
    }
    constexpr std::string_view doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    std::size_t size = 1;
    for (const std::string_view op : doubles) {
      if (starts(at_, op)) size = 2;
    }
    if (size == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      error_ = fmt::format("unexpected character '{}'", text_.substr(at_, pystr::offset(text_.substr(at_, 4), 1)));
      return;
    }
    if (c == '{' || c == '(' || c == '[') brackets.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    if (c == '}' || c == ')' || c == ']') {
      if (brackets.empty() || brackets.back() != c) {
        error_ = brackets.empty() ? fmt::format("unexpected '{}'", c)
                                  : fmt::format("unexpected '{}', expected '{}'", c, brackets.back());
        return;
      }
      brackets.pop_back();
    }
    put(TokenKind::op, text_.substr(at_, size));
    advance(at_ + size);
  }

  std::size_t behind_digits(std::size_t at, std::string_view allowed) const {
    const auto fits = [&](std::size_t i) {
      return i < text_.size() && allowed.find(text_[i]) != std::string_view::npos;
    };
    while (fits(at) || (at > 0 && at < text_.size() && text_[at] == '_' && fits(at - 1) && fits(at + 1))) ++at;
    return at;
  }

  void number() {
    constexpr std::string_view decimal = "0123456789";
    const std::size_t whole = behind_digits(at_, decimal);
    std::size_t end = whole;
    if (at_ == 0 || text_[at_ - 1] != '.') {  // "a.0.1" is two subscripts, not 0.1
      if (starts(end, ".") && end + 1 < text_.size() && is_digit(text_[end + 1])) end = behind_digits(end + 1, decimal);
      if (end < text_.size() && (text_[end] | 0x20) == 'e') {
        std::size_t power = end + 1;
        if (power < text_.size() && (text_[power] == '+' || text_[power] == '-')) ++power;
        if (power < text_.size() && is_digit(text_[power])) end = behind_digits(power, decimal);
      }
    }
    Token token{TokenKind::number, line_, {}, {}};
    if (end > whole) {
      token.number = Value::real(parse_float(text_.substr(at_, end - at_)).value_or(0.0));
      tokens_.push_back(std::move(token));
      return advance(end);
    }
    end = whole;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char mark = static_cast<char>(text_[at_ + 1] | 0x20);
      const std::string_view allowed = mark == 'x'   ? "0123456789abcdefABCDEF"
                                       : mark == 'o' ? "01234567"
                                       : mark == 'b' ? "01"
                                                     : "";
      const std::size_t first = at_ + 2 + (starts(at_ + 2, "_") ? 1 : 0);
      if (!allowed.empty() && first < text_.size() && allowed.find(text_[first]) != std::string_view::npos) {
        end = behind_digits(first, allowed);
      } else {
        end = behind_digits(at_, "0");  // a leading zero stands alone
      }
    }
    const std::optional<Integer> value = parse_integer(text_.substr(at_, end - at_), 0);
    if (!value) {
      error_ = fmt::format("number '{}' is too large", text_.substr(at_, std::min<std::size_t>(end - at_, 60)));
      return;
    }
    token.number = Value::integer(*value);
    tokens_.push_back(std::move(token));
    advance(end);
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) {
      error_ = "missing end of string";
      return;
    }
    std::string value;
    if (!unescape(text_.substr(at_ + 1, end - at_ - 1), value)) return;
    put(TokenKind::string, value);
    advance(end + 1);
  }

  // Python's escapes.
  bool unescape(std::string_view text, std::string& out) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t known = from.find(c); known != std::string_view::npos) {
        out.push_back(to[known]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        unsigned value = 0;
        std::size_t n = 0;
        while (n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7') {
          value = value * 8 + static_cast<unsigned>(text[i + n++] - '0');
        }
        pystr::encode(value, out);
        i += n - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::optional<Integer> value =
            text.find_first_not_of("0123456789abcdefABCDEF", i + 1) < i + 1 + n || i + n >= text.size()
                ? std::nullopt
                : parse_integer(text.substr(i + 1, n), 16);
        if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000)) {
          error_ = fmt::format("bad escape '\\{}' in a string", text.substr(i, n + 1));
          return false;
        }
        pystr::encode(static_cast<char32_t>(*value), out);
        i += n;
      } else if (c == 'N') {
        error_ = "\\N{...} escapes are not supported";
        return false;
      } else {
        out.push_back('\\');
        // Jinja2 turns a non-ASCII character into an escape first, whose backslash then pairs with the one before.
        if ((c & 0x80) != 0) {
          const auto code = static_cast<unsigned>(pystr::decode(text, i));
          --i;
          out += code < 0x100     ? fmt::format("x{:02x}", code)
                 : code < 0x10000 ? fmt::format("u{:04x}", code)
                                  : fmt::format("U{:08x}", code);
        } else {
          out.push_back(c);
        }
      }
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string error_;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (!pystr::valid_utf8(source)) return fail("chat template: not valid UTF-8");
  const std::string text = with_unix_newlines(source);
  return Lexer(text).run();
}

}  // namespace heddle::text::jinja
