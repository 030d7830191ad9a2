#pragma once
// The expressions of a template, by recursive descent in Jinja2's order of precedence. Every function gives a node, or
// null with the error in the stream.
#include <functional>
#include <string_view>

#include "text/jinja_token_stream.h"

namespace heddle::text::jinja {

class ExpressionParser {
 public:
  // on_name hears of every variable that is read.
  ExpressionParser(TokenStream& stream, std::function<void(const std::string&)> on_name)
      : in_(stream), on_name_(std::move(on_name)) {}

  ExpressionPtr expression();         // with the inline if
  ExpressionPtr without_condition();  // without it
  ExpressionPtr tuple(bool with_condition, bool parenthesised, std::string_view end_name = {});
  ExpressionPtr target(bool allow_namespace, std::string_view end_name = {});  // of an assignment
  ExpressionPtr filters(ExpressionPtr input, bool first_without_pipe);

 private:
  using Kind = Expression::Kind;

  ExpressionPtr node(Kind kind, int line, ExpressionPtr a = nullptr, ExpressionPtr b = nullptr);
  ExpressionPtr checked(ExpressionPtr node);
  void adopt(Expression& parent, ExpressionPtr child);
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr test(ExpressionPtr subject);
  std::unique_ptr<CallSyntax> call_arguments(Expression& owner);
  std::string dotted_name();
  bool at_tuple_end(std::string_view end_name) const;

  TokenStream& in_;
  std::function<void(const std::string&)> on_name_;
};

}  // namespace heddle::text::jinja
