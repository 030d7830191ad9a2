#pragma once
// Walks a template's tree and writes its output. One object is one render on one thread; it owns the scopes and macros
// that values may refer to, so those values must not outlive it.
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja_arguments.h"
#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace heddle::text::jinja {

struct LoopState;

struct Scope {
  Scope* parent = nullptr;  // null for the outermost
  std::vector<std::pair<Symbol, Value>> variables;
};

struct Macro {
  const Statement* statement;  // macro or call block
  Scope* scope;                // where it was defined
};

class Interpreter {
 public:
  Interpreter(const Template& source, Runtime& rt) : template_(source), rt_(rt) {}

  // A variable that the template finds; later ones replace earlier ones.
  void define(const std::string& name, Value value) { variables_[name] = std::move(value); }

  TracedText run();  // on failure, the error is in the Runtime

 private:
  enum class Flow { normal, stop_loop, next_turn };

  Flow execute(const Body& body, Scope& scope);
  Flow execute(const Statement& statement, Scope& scope);
  Flow choose(const Statement& statement, Scope& scope);
  Flow loop(const Statement& statement, Scope& scope);
  Flow run_loop(const Statement& statement, const Value& iterable, int depth, Scope& scope);
  Flow with(const Statement& statement, Scope& scope);
  // Runs a body into a string of its own.
  TracedText captured(const Body& body, Scope& scope, Flow& flow);
  Flow scoped(const Statement& statement, Scope& scope);
  Flow assign_block(const Statement& statement, Scope& scope);
  Flow filter_block(const Statement& statement, Scope& scope);
  void define_macro(const Statement& statement, Scope& scope);
  void call_block(const Statement& statement, Scope& scope);
  void write(const TracedText& text);

  void assign(const Expression& target, const Value& value, Scope& scope);
  static void set(Scope& scope, Symbol symbol, Value value);
  Value lookup(Symbol symbol, Scope& scope);

  // A scope that lives as long as the render when something inside may refer to it, else as long as this object.
  class Inner {
   public:
    Inner(Interpreter& interpreter, Scope& parent, bool captured);
    Scope& operator*() { return *scope_; }

   private:
    Scope own_;
    Scope* scope_;
  };

  Value evaluate(const Expression& expression, Scope& scope);
  Value evaluate_filter(const Expression& expression, const Value* input, Scope& scope);
  Value constant_sequence(const Expression& expression, Scope& scope);
  Value dict_literal(const Expression& expression, Scope& scope);
  Value comparison(const Expression& expression, Scope& scope);
  Value concat(const Expression& expression, Scope& scope);
  Value slice_of(const Expression& expression, Scope& scope);
  Arguments arguments(const CallSyntax& call, Scope& scope);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Macro& macro, const std::string& name, const Arguments& arguments);
  Value call_loop(LoopState& loop, const Arguments& arguments);
  Value make_macro(const Statement& statement, const std::string& name, Scope& scope);
  void bind(const Signature& signature, const std::string& name, const Arguments& arguments, Scope& scope);

  const Template& template_;
  Runtime& rt_;
  std::unordered_map<std::string, Value> variables_;
  std::vector<std::optional<Value>> globals_;  // by symbol: variables, then functions
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  TracedText* out_ = nullptr;
};

}  // namespace heddle::text::jinja
