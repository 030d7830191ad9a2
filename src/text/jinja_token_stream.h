#pragma once
// What the two halves of the parser share: the tokens, the place among them, the first error, the symbols. After an
// error the place is at the end, so that every loop over tokens stops.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace heddle::text::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, int max_depth) : tokens_(std::move(tokens)), max_depth_(max_depth) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  Token next() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool skip_op(std::string_view op) { return current().is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return current().is_name(name) && (next(), true); }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail(fmt::format("expected '{}', found {}", op, described()));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (current().kind == kind) {
      next();
    } else {
      fail(fmt::format("expected {}, found {}", what, described()));
    }
  }
  std::string expect_any_name() {
    if (current().kind == TokenKind::name) return next().text;
    fail(fmt::format("expected a name, found {}", described()));
    return {};
  }

  std::string described() const {
    switch (current().kind) {
      case TokenKind::data:
        return "text";
      case TokenKind::block_begin:
        return "'{%'";
      case TokenKind::block_end:
        return "'%}'";
      case TokenKind::print_begin:
        return "'{{'";
      case TokenKind::print_end:
        return "'}}'";
      case TokenKind::name:
      case TokenKind::op:
        return fmt::format("'{}'", current().text);
      case TokenKind::string:
        return "a string";
      case TokenKind::number:
        return "a number";
      case TokenKind::end:
        return "the end of the template";
    }
    return {};
  }

  void fail(std::string message) { fail(std::move(message), line()); }
  void fail(std::string message, int line) {
    if (error_.empty()) error_ = fmt::format("chat template line {}: {}", line, message);
    at_ = tokens_.size() - 1;
  }
  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }

  Symbol symbol(const std::string& name) {
    const auto [found, added] = by_name_.try_emplace(name, static_cast<Symbol>(symbols_.size()));
    if (added) symbols_.push_back(name);
    return found->second;
  }
  std::vector<std::string> take_symbols() { return std::move(symbols_); }

  // Nesting of blocks and brackets.
  class Depth {
   public:
    explicit Depth(TokenStream& stream) : stream_(stream) {
      if (++stream_.depth_ > stream_.max_depth_) stream_.fail(fmt::format("nested deeper than {}", stream_.max_depth_));
    }
    ~Depth() { --stream_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    TokenStream& stream_;
  };
  int max_depth() const { return max_depth_; }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int max_depth_;
  int depth_ = 0;
  std::string error_;
  std::unordered_map<std::string, Symbol> by_name_;
  std::vector<std::string> symbols_;
};

}  // namespace heddle::text::jinja
