#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja_expression_parser.h"
#include "text/jinja_token_stream.h"

namespace heddle::text::jinja {
namespace {

using Kind = Statement::Kind;
using StatementPtr = std::unique_ptr<Statement>;

class Parser {
 public:
  Parser(std::vector<Token> tokens, int max_depth)
      : in_(std::move(tokens), max_depth), expressions_(in_, [this](const std::string& name) { saw_name(name); }) {}

  Result<Template> run() {
    Template made;
    made.body = statements({});
    if (!in_.ok()) return fail(in_.error());
    made.caller = in_.symbol("caller");
    made.kwargs = in_.symbol("kwargs");
    made.varargs = in_.symbol("varargs");
    made.symbols = in_.take_symbols();
    return made;
  }

 private:
  // The macro or call block being parsed: which of the implicit variables its body reads.
  struct Function {
    bool varargs = false, kwargs = false, caller = false;
  };

  void saw_name(const std::string& name) {
    if (functions_.empty()) return;
    Function& innermost = functions_.back();
    innermost.varargs = innermost.varargs || name == "varargs";
    innermost.kwargs = innermost.kwargs || name == "kwargs";
    innermost.caller = innermost.caller || name == "caller";
  }

  StatementPtr statement(Kind kind) {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = in_.line();
    return made;
  }

  // Up to one of the tags in `ends`, which stays as the current token; the whole template without.
  Body statements(std::initializer_list<std::string_view> ends) {
    const TokenStream::Depth depth(in_);
    Body body;
    while (in_.ok()) {
      const Token& token = in_.current();
      if (token.kind == TokenKind::end) {
        if (ends.size() > 0) in_.fail(fmt::format("unexpected end of the template, expected {}", listed(ends)));
        break;
      }
      if (token.kind == TokenKind::data) {
        StatementPtr made = statement(Kind::text);
        made->text = Value::literal(in_.next().text);
        body.push_back(std::move(made));
      } else if (token.kind == TokenKind::print_begin) {
        StatementPtr made = statement(Kind::print);
        in_.next();
        made->value = expressions_.tuple(true, false);
        in_.expect(TokenKind::print_end, "'}}'");
        body.push_back(std::move(made));
      } else {
        in_.expect(TokenKind::block_begin, "'{%'");
        const Token& tag = in_.current();
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tag.is_name(end); })) return body;
        if (StatementPtr made = tag_statement(ends)) body.push_back(std::move(made));
        in_.expect(TokenKind::block_end, "'%}'");
      }
    }
    return body;
  }

  static std::string listed(std::initializer_list<std::string_view> ends) {
    std::string out;
    for (const std::string_view end : ends) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", end);
    return out;
  }

  // The rest of a tag, its body, and the name of the closing tag. The end of that tag is left for the caller.
  Body body(std::initializer_list<std::string_view> ends) {
    in_.skip_op(":");
    in_.expect(TokenKind::block_end, "'%}'");
    return statements(ends);
  }

  Body closed_body(std::string_view end) {
    Body made = body({end});
    in_.next();
    return made;
  }

  // As closed_body, noting whether a macro inside may keep the scope alive.
  Body scoped_body(Statement& owner, std::string_view end) {
    const int before = n_closures_;
    Body made = closed_body(end);
    owner.captured = n_closures_ != before;
    return made;
  }

  StatementPtr tag_statement(std::initializer_list<std::string_view> ends) {
    const std::string tag = in_.current().kind == TokenKind::name ? in_.current().text : std::string();
    if (tag == "if") return choice();
    if (tag == "for") return loop();
    if (tag == "set") return set();
    if (tag == "macro") return macro();
    if (tag == "call") return call_block();
    if (tag == "filter") return filter_block();
    if (tag == "with") return with();
    if (tag == "print") return print();
    if (tag == "do") return evaluate();
    if (tag == "generation") return generation();
    if (tag == "block") return block();
    if (tag == "break" || tag == "continue") return loop_control(tag == "break");
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      in_.fail(fmt::format("'{}' needs other templates, which a chat template doesn't have", tag));
    } else if (tag == "autoescape") {
      in_.fail("'autoescape' is not supported: chat templates are plain text");
    } else if (tag.empty()) {
      in_.fail(fmt::format("expected the name of a tag, found {}", in_.described()));
    } else {
      in_.fail(ends.size() == 0 ? fmt::format("unknown tag '{}'", tag)
                                : fmt::format("unknown tag '{}', expected {}", tag, listed(ends)));
    }
    return nullptr;
  }

  StatementPtr choice() {
    StatementPtr made = statement(Kind::choice);
    in_.next();
    while (in_.ok()) {
      ExpressionPtr condition = expressions_.tuple(false, false);
      Body then = body({"elif", "else", "endif"});
      made->branches.emplace_back(std::move(condition), std::move(then));
      const Token token = in_.next();
      if (token.is_name("elif")) continue;
      if (token.is_name("else")) made->otherwise = closed_body("endif");
      break;
    }
    return made;
  }

  StatementPtr loop() {
    StatementPtr made = statement(Kind::loop);
    in_.next();
    made->symbol = in_.symbol("loop");
    made->target = expressions_.target(false, "in");
    if (!in_.skip_name("in")) in_.fail(fmt::format("expected 'in', found {}", in_.described()));
    made->value = expressions_.tuple(false, false, "recursive");
    if (in_.skip_name("if")) made->filter = expressions_.expression();
    made->recursive = in_.skip_name("recursive");
    const int before = n_closures_;
    if (made->recursive) ++n_closures_;
    ++loops_;
    made->body = body({"endfor", "else"});
    --loops_;
    if (in_.next().is_name("else")) made->otherwise = closed_body("endfor");
    made->captured = n_closures_ != before;
    return made;
  }

  StatementPtr set() {
    StatementPtr made = statement(Kind::assign);
    in_.next();
    made->target = expressions_.target(true);
    if (in_.skip_op("=")) {
      made->value = expressions_.tuple(true, false);
      return made;
    }
    made->kind = Kind::assign_block;
    made->value = expressions_.filters(nullptr, false);
    made->body = scoped_body(*made, "endset");
    return made;
  }

  std::unique_ptr<Signature> signature() {
    auto made = std::make_unique<Signature>();
    in_.expect_op("(");
    while (in_.ok() && !in_.current().is_op(")")) {
      made->names.push_back(in_.expect_any_name());
      made->parameters.push_back(in_.symbol(made->names.back()));
      if (in_.skip_op("=")) {
        made->defaults.push_back(expressions_.expression());
      } else if (!made->defaults.empty()) {
        in_.fail("a parameter without default follows one with a default");
      }
      if (!in_.skip_op(",")) break;
    }
    in_.expect_op(")");
    return made;
  }

  void function_body(Statement& made, std::string_view end) {
    ++n_closures_;
    functions_.emplace_back();
    const int loops = std::exchange(loops_, 0);
    made.body = scoped_body(made, end);
    loops_ = loops;
    made.signature->takes_varargs = functions_.back().varargs;
    made.signature->takes_kwargs = functions_.back().kwargs;
    made.signature->takes_caller = functions_.back().caller;
    functions_.pop_back();
  }

  StatementPtr macro() {
    StatementPtr made = statement(Kind::macro);
    in_.next();
    made->name = in_.expect_any_name();
    made->symbol = in_.symbol(made->name);
    made->signature = signature();
    function_body(*made, "endmacro");
    return made;
  }

  StatementPtr call_block() {
    StatementPtr made = statement(Kind::call_block);
    in_.next();
    made->signature = in_.current().is_op("(") ? signature() : std::make_unique<Signature>();
    const int line = in_.line();
    made->value = expressions_.expression();
    if (made->value && made->value->kind != Expression::Kind::call) in_.fail("expected a call", line);
    function_body(*made, "endcall");
    return made;
  }

  StatementPtr filter_block() {
    StatementPtr made = statement(Kind::filter_block);
    in_.next();
    made->value = expressions_.filters(nullptr, true);
    made->body = scoped_body(*made, "endfilter");
    return made;
  }

  StatementPtr with() {
    StatementPtr made = statement(Kind::with);
    in_.next();
    while (in_.ok() && in_.current().kind != TokenKind::block_end && !in_.current().is_op(":")) {
      ExpressionPtr target = expressions_.target(false);
      in_.expect_op("=");
      made->assignments.emplace_back(std::move(target), expressions_.expression());
      if (!in_.skip_op(",")) break;
    }
    made->body = scoped_body(*made, "endwith");
    return made;
  }

  StatementPtr print() {
    StatementPtr made = statement(Kind::scope);
    in_.next();
    while (in_.ok() && in_.current().kind != TokenKind::block_end) {
      StatementPtr one = statement(Kind::print);
      one->value = expressions_.expression();
      made->body.push_back(std::move(one));
      if (!in_.skip_op(",")) break;
    }
    return made;
  }

  StatementPtr evaluate() {
    StatementPtr made = statement(Kind::evaluate);
    in_.next();
    made->value = expressions_.tuple(true, false);
    return made;
  }

  StatementPtr generation() {
    StatementPtr made = statement(Kind::scope);
    in_.next();
    made->body = scoped_body(*made, "endgeneration");
    return made;
  }

  StatementPtr block() {
    StatementPtr made = statement(Kind::scope);
    in_.next();
    const std::string name = in_.expect_any_name();
    in_.skip_name("scoped");
    in_.skip_name("required");
    made->body = scoped_body(*made, "endblock");
    in_.skip_name(name);
    return made;
  }

  StatementPtr loop_control(bool stop) {
    StatementPtr made = statement(stop ? Kind::stop_loop : Kind::next_turn);
    if (loops_ == 0) in_.fail(fmt::format("'{}' outside of a loop", stop ? "break" : "continue"));
    in_.next();
    return made;
  }

  TokenStream in_;
  ExpressionParser expressions_;
  std::vector<Function> functions_;
  int loops_ = 0;
  int n_closures_ = 0;
};

}  // namespace

Result<Template> parse_template(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return fail(
        fmt::format("chat template: {} bytes, more than the limit of {}", source.size(), limits.max_source_bytes));
  }
  Result<std::vector<Token>> tokens = tokenize(source);
  if (!tokens) return tl::unexpected(tokens.error());
  return Parser(std::move(*tokens), limits.max_depth).run();
}

}  // namespace heddle::text::jinja
