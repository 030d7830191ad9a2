#pragma once
// Template source to tokens, with Jinja2's white space rules as transformers sets them: trim_blocks, lstrip_blocks, and
// one newline at the end dropped. Pure function; an error is one line with the line number.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja_value.h"

namespace heddle::text::jinja {

enum class TokenKind : std::uint8_t {
  data,
  block_begin,
  block_end,
  print_begin,
  print_end,
  name,
  string,
  number,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // data, name, operator, or the string's value
  Value number;
  bool is_op(std::string_view wanted) const { return kind == TokenKind::op && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
};

// The last token is `end`.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace heddle::text::jinja
