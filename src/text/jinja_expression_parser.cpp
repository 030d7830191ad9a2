#include "text/jinja_expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

namespace heddle::text::jinja {
namespace {

constexpr std::array constants = {"true", "True", "false", "False", "none", "None"};

std::optional<Value> constant_named(std::string_view name) {
  if (name == "true" || name == "True") return Value::boolean(true);
  if (name == "false" || name == "False") return Value::boolean(false);
  if (name == "none" || name == "None") return Value::none();
  return std::nullopt;
}

std::optional<Operator> comparison_op(const Token& token) {
  constexpr std::pair<std::string_view, Operator> operators[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  for (const auto& [text, op] : operators) {
    if (token.is_op(text)) return op;
  }
  return std::nullopt;
}

}  // namespace

ExpressionPtr ExpressionParser::node(Kind kind, int line, ExpressionPtr a, ExpressionPtr b) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  if (a) adopt(*made, std::move(a));
  if (b) adopt(*made, std::move(b));
  return checked(std::move(made));
}

// Chains such as a + b + c + ... nest without recursion here, but not when they are evaluated.
ExpressionPtr ExpressionParser::checked(ExpressionPtr node) {
  if (node && node->depth > in_.max_depth())
    in_.fail(fmt::format("nested deeper than {}", in_.max_depth()), node->line);
  return node;
}

void ExpressionParser::adopt(Expression& parent, ExpressionPtr child) {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  parent.parts.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::expression() {
  const TokenStream::Depth depth(in_);
  int line = in_.line();
  ExpressionPtr value = either();
  while (in_.ok() && in_.skip_name("if")) {
    ExpressionPtr condition = either();
    ExpressionPtr otherwise = in_.skip_name("else") ? expression() : nullptr;
    ExpressionPtr made = node(Kind::conditional, line, std::move(condition), std::move(value));
    adopt(*made, std::move(otherwise));
    value = checked(std::move(made));
    line = in_.line();
  }
  return value;
}

ExpressionPtr ExpressionParser::without_condition() { return either(); }

ExpressionPtr ExpressionParser::either() {
  const TokenStream::Depth depth(in_);
  int line = in_.line();
  ExpressionPtr left = both();
  while (in_.ok() && in_.skip_name("or")) {
    ExpressionPtr right = both();
    left = node(Kind::either, line, std::move(left), std::move(right));
    line = in_.line();
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  int line = in_.line();
  ExpressionPtr left = negation();
  while (in_.ok() && in_.skip_name("and")) {
    ExpressionPtr right = negation();
    left = node(Kind::both, line, std::move(left), std::move(right));
    line = in_.line();
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!in_.current().is_name("not")) return comparison();
  const TokenStream::Depth depth(in_);
  if (!in_.ok()) return nullptr;
  const int line = in_.next().line;
  return node(Kind::negation, line, negation());
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = in_.line();
  ExpressionPtr left = sum();
  ExpressionPtr made;
  while (in_.ok()) {
    std::optional<Operator> op = comparison_op(in_.current());
    if (op) {
      in_.next();
    } else if (in_.skip_name("in")) {
      op = Operator::in;
    } else if (in_.current().is_name("not") && in_.ahead().is_name("in")) {
      in_.next();
      in_.next();
      op = Operator::not_in;
    } else {
      break;
    }
    if (!made) made = node(Kind::comparison, line, std::move(left));
    made->operators.push_back(*op);
    adopt(*made, sum());
  }
  return made ? checked(std::move(made)) : std::move(left);
}

ExpressionPtr ExpressionParser::sum() {
  int line = in_.line();
  ExpressionPtr left = concat();
  while (in_.ok() && (in_.current().is_op("+") || in_.current().is_op("-"))) {
    const Operator op = in_.next().text == "+" ? Operator::add : Operator::subtract;
    ExpressionPtr right = concat();
    left = node(Kind::arithmetic, line, std::move(left), std::move(right));
    left->operators.push_back(op);
    line = in_.line();
  }
  return left;
}

ExpressionPtr ExpressionParser::concat() {
  const int line = in_.line();
  ExpressionPtr first = product();
  if (!in_.current().is_op("~")) return first;
  ExpressionPtr made = node(Kind::concat, line, std::move(first));
  while (in_.ok() && in_.skip_op("~")) adopt(*made, product());
  return checked(std::move(made));
}

ExpressionPtr ExpressionParser::product() {
  int line = in_.line();
  ExpressionPtr left = power();
  while (in_.ok()) {
    Operator op;
    if (in_.skip_op("*")) {
      op = Operator::multiply;
    } else if (in_.skip_op("/")) {
      op = Operator::divide;
    } else if (in_.skip_op("//")) {
      op = Operator::floor_divide;
    } else if (in_.skip_op("%")) {
      op = Operator::modulo;
    } else {
      break;
    }
    ExpressionPtr right = power();
    left = node(Kind::arithmetic, line, std::move(left), std::move(right));
    left->operators.push_back(op);
    line = in_.line();
  }
  return left;
}

// Unlike Python's, groups to the left, and a sign binds tighter: -2 ** 2 is 4.
ExpressionPtr ExpressionParser::power() {
  int line = in_.line();
  ExpressionPtr left = unary(true);
  while (in_.ok() && in_.skip_op("**")) {
    ExpressionPtr right = unary(true);
    left = node(Kind::arithmetic, line, std::move(left), std::move(right));
    left->operators.push_back(Operator::power);
    line = in_.line();
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::Depth depth(in_);
  if (!in_.ok()) return nullptr;
  const int line = in_.line();
  ExpressionPtr made;
  if (in_.skip_op("-")) {
    made = node(Kind::negate, line, unary(false));
  } else if (in_.skip_op("+")) {
    made = node(Kind::positive, line, unary(false));
  } else {
    made = primary();
  }
  made = postfix(std::move(made));
  return with_filters ? filters_and_tests(std::move(made)) : std::move(made);
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = in_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name: {
      const std::string name = in_.next().text;
      if (const std::optional<Value> value = constant_named(name)) {
        ExpressionPtr made = node(Kind::constant, line);
        made->constant = *value;
        return made;
      }
      on_name_(name);
      ExpressionPtr made = node(Kind::name, line);
      made->name = name;
      made->symbol = in_.symbol(name);
      return made;
    }
    case TokenKind::string: {
      std::string text;
      while (in_.current().kind == TokenKind::string) text += in_.next().text;
      ExpressionPtr made = node(Kind::constant, line);
      made->constant = Value::literal(text);
      return made;
    }
    case TokenKind::number: {
      ExpressionPtr made = node(Kind::constant, line);
      made->constant = in_.next().number;
      return made;
    }
    case TokenKind::op:
      if (in_.skip_op("(")) {
        ExpressionPtr made = tuple(true, true);
        in_.expect_op(")");
        return made;
      }
      if (token.is_op("[")) return list();
      if (token.is_op("{")) return dict();
      break;
    default:
      break;
  }
  in_.fail(fmt::format("unexpected {}", in_.described()));
  return nullptr;
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  const Token& token = in_.current();
  return token.kind == TokenKind::print_end || token.kind == TokenKind::block_end || token.is_op(")") ||
         (!end_name.empty() && token.is_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, bool parenthesised, std::string_view end_name) {
  const int line = in_.line();
  std::vector<ExpressionPtr> parts;
  bool comma = false;
  while (in_.ok() && !at_tuple_end(end_name)) {
    parts.push_back(with_condition ? expression() : without_condition());
    if (!in_.skip_op(",")) break;
    comma = true;
  }
  if (!comma && !parts.empty()) return std::move(parts.front());
  if (!comma && !parenthesised) {
    in_.fail(fmt::format("expected an expression, found {}", in_.described()));
    return nullptr;
  }
  ExpressionPtr made = node(Kind::tuple, line);
  for (ExpressionPtr& part : parts) adopt(*made, std::move(part));
  return checked(std::move(made));
}

ExpressionPtr ExpressionParser::target(bool allow_namespace, std::string_view end_name) {
  const TokenStream::Depth depth(in_);
  const int line = in_.line();
  std::vector<ExpressionPtr> parts;
  bool comma = false;
  while (in_.ok() && !at_tuple_end(end_name)) {
    if (in_.skip_op("(")) {
      parts.push_back(target(allow_namespace));
      in_.expect_op(")");
    } else {
      const int name_line = in_.line();
      const std::string name = in_.expect_any_name();
      if (std::find(constants.begin(), constants.end(), name) != constants.end()) {
        in_.fail(fmt::format("can't assign to '{}'", name), name_line);
      }
      ExpressionPtr made = node(Kind::name, name_line);
      made->symbol = in_.symbol(name);
      made->name = name;
      if (allow_namespace && in_.skip_op(".")) {
        on_name_(name);
        made = node(Kind::attribute, name_line, std::move(made));
        made->name = in_.expect_any_name();
      }
      parts.push_back(std::move(made));
    }
    if (!in_.skip_op(",")) break;
    comma = true;
  }
  if (!comma && !parts.empty()) return std::move(parts.front());
  if (parts.empty()) in_.fail(fmt::format("expected a name to assign to, found {}", in_.described()));
  ExpressionPtr made = node(Kind::tuple, line);
  for (ExpressionPtr& part : parts) adopt(*made, std::move(part));
  return checked(std::move(made));
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr made = node(Kind::list, in_.next().line);
  while (in_.ok() && !in_.current().is_op("]")) {
    adopt(*made, expression());
    if (!in_.skip_op(",")) break;
  }
  in_.expect_op("]");
  return checked(std::move(made));
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr made = node(Kind::dict, in_.next().line);
  while (in_.ok() && !in_.current().is_op("}")) {
    adopt(*made, expression());
    in_.expect_op(":");
    adopt(*made, expression());
    if (!in_.skip_op(",")) break;
  }
  in_.expect_op("}");
  return checked(std::move(made));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr made) {
  while (in_.ok()) {
    if (in_.current().is_op(".") || in_.current().is_op("[")) {
      made = subscript(std::move(made));
    } else if (in_.current().is_op("(")) {
      ExpressionPtr call = node(Kind::call, in_.line(), std::move(made));
      call->call = call_arguments(*call);
      made = checked(std::move(call));
    } else {
      break;
    }
  }
  return made;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr made) {
  while (in_.ok()) {
    if (in_.current().is_op("|")) {
      made = filters(std::move(made), false);
    } else if (in_.current().is_name("is")) {
      made = test(std::move(made));
    } else if (in_.current().is_op("(")) {
      made = postfix(std::move(made));
    } else {
      break;
    }
  }
  return made;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int line = in_.line();
  if (in_.skip_op(".")) {
    const Token token = in_.next();
    if (token.kind == TokenKind::name) {
      ExpressionPtr made = node(Kind::attribute, line, std::move(object));
      made->name = token.text;
      return made;
    }
    if (token.kind != TokenKind::number || !token.number.is_integral()) {
      in_.fail("expected a name or number behind '.'", token.line);
      return nullptr;
    }
    ExpressionPtr index = node(Kind::constant, line);
    index->constant = token.number;
    return node(Kind::item, line, std::move(object), std::move(index));
  }
  in_.expect_op("[");
  const auto bound_ends = [&] {
    return in_.current().is_op(":") || in_.current().is_op("]") || in_.current().is_op(",");
  };
  ExpressionPtr first = in_.current().is_op(":") ? nullptr : expression();
  if (!in_.current().is_op(":")) {
    if (in_.current().is_op(",")) {
      ExpressionPtr keys = node(Kind::tuple, line, std::move(first));
      while (in_.ok() && in_.skip_op(",") && !in_.current().is_op("]")) adopt(*keys, expression());
      first = checked(std::move(keys));
    }
    in_.expect_op("]");
    return node(Kind::item, line, std::move(object), std::move(first));
  }
  in_.next();
  ExpressionPtr made = node(Kind::slice, line, std::move(object));
  adopt(*made, std::move(first));
  adopt(*made, bound_ends() ? nullptr : expression());
  adopt(*made, in_.skip_op(":") && !bound_ends() ? expression() : nullptr);
  in_.expect_op("]");
  return checked(std::move(made));
}

std::unique_ptr<CallSyntax> ExpressionParser::call_arguments(Expression& owner) {
  auto call = std::make_unique<CallSyntax>();
  const int line = in_.line();
  in_.expect_op("(");
  const auto add = [&]() {
    ExpressionPtr value = expression();
    if (value) owner.depth = std::max(owner.depth, value->depth + 1);
    return value;
  };
  while (in_.ok() && !in_.current().is_op(")")) {
    const bool named = in_.current().kind == TokenKind::name && in_.ahead().is_op("=");
    const bool star = in_.current().is_op("*");
    const bool double_star = in_.current().is_op("**");
    const bool positional = !named && !star && !double_star;
    if (call->double_star || (call->star && (positional || star)) || (positional && !call->named.empty())) {
      in_.fail("arguments of a call in the wrong order", line);
      break;
    }
    if (positional) {
      call->positional.push_back(add());
    } else {
      const std::string name = in_.next().text;
      if (named) in_.next();
      ExpressionPtr value = add();
      if (named) {
        call->named.emplace_back(name, std::move(value));
      } else {
        (star ? call->star : call->double_star) = std::move(value);
      }
    }
    if (!in_.skip_op(",")) break;
  }
  in_.expect_op(")");
  return call;
}

std::string ExpressionParser::dotted_name() {
  std::string name = in_.expect_any_name();
  while (in_.ok() && in_.skip_op(".")) name.append(1, '.').append(in_.expect_any_name());
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input, bool first_without_pipe) {
  while (in_.ok() && (first_without_pipe || in_.skip_op("|"))) {
    first_without_pipe = false;
    auto made = std::make_unique<Expression>();
    made->kind = Kind::filter;
    made->line = in_.line();
    adopt(*made, std::move(input));
    made->name = dotted_name();
    made->call = in_.current().is_op("(") ? call_arguments(*made) : std::make_unique<CallSyntax>();
    input = checked(std::move(made));
  }
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
  const int line = in_.next().line;
  const bool negated = in_.skip_name("not");
  ExpressionPtr made = node(Kind::test, line, std::move(subject));
  made->name = dotted_name();
  made->call = std::make_unique<CallSyntax>();
  const Token& token = in_.current();
  const bool operand =
      token.kind == TokenKind::string || token.kind == TokenKind::number || token.is_op("[") || token.is_op("{") ||
      (token.kind == TokenKind::name && token.text != "else" && token.text != "or" && token.text != "and");
  if (token.is_op("(")) {
    made->call = call_arguments(*made);
  } else if (operand) {
    if (token.is_name("is")) {
      in_.fail("tests can't be chained with 'is'");
      return nullptr;
    }
    const TokenStream::Depth depth(in_);
    ExpressionPtr argument = postfix(primary());
    if (argument) made->depth = std::max(made->depth, argument->depth + 1);
    made->call->positional.push_back(std::move(argument));
  }
  made = checked(std::move(made));
  return negated ? node(Kind::negation, line, std::move(made)) : std::move(made);
}

}  // namespace heddle::text::jinja
