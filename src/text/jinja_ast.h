#pragma once
// A parsed template. Built by the parser, then const and shared between threads.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_operators.h"
#include "text/jinja_value.h"

namespace heddle::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

using Symbol = int;  // index into Template::symbols

struct CallSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *list
  ExpressionPtr double_star;  // **dict
};

struct Expression {
  enum class Kind : std::uint8_t {
    constant,     // constant
    name,         // symbol
    tuple,        // parts
    list,         // parts
    dict,         // parts: key, value, key, value ...
    negate,       // parts[0]
    positive,     // parts[0]
    negation,     // not parts[0]
    arithmetic,   // parts[0] operators[0] parts[1]
    comparison,   // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    concat,       // parts joined as text
    both,         // parts[0] and parts[1]
    either,       // parts[0] or parts[1]
    conditional,  // parts: condition, then, else (may be null)
    attribute,    // parts[0].name
    item,         // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]], each bound may be null
    call,         // parts[0](call)
    filter,       // parts[0] | name(call); parts[0] is null for the input of a filter or set block
    test,         // parts[0] is name(call)
  };
  Kind kind;
  int line = 0;
  int depth = 1;  // of the tree below
  Symbol symbol = 0;
  Value constant;
  std::string name;
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  std::unique_ptr<CallSyntax> call;
};

struct Signature {
  std::vector<Symbol> parameters;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool takes_varargs = false;           // the body reads varargs, kwargs, caller
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Statement {
  enum class Kind : std::uint8_t {
    text,          // text
    print,         // value
    choice,        // branches, otherwise
    loop,          // for target in value if filter: body, otherwise
    assign,        // set target = value
    assign_block,  // set target | value: body
    macro,         // symbol, signature, body
    call_block,    // call(signature) value: body
    filter_block,  // filter value: body
    with,          // assignments, body
    scope,         // body with names of its own: generation, block
    evaluate,      // do value
    stop_loop,     // break
    next_turn,     // continue
  };
  Kind kind;
  int line = 0;
  Value text;
  ExpressionPtr target;
  ExpressionPtr value;
  ExpressionPtr filter;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  Body body;
  Body otherwise;
  std::unique_ptr<Signature> signature;
  Symbol symbol = 0;
  std::string name;
  bool recursive = false;
  bool captured = false;  // a macro or recursive loop inside may outlive the scope of the body
};

struct Template {
  Body body;
  std::vector<std::string> symbols;
  Symbol caller = 0, kwargs = 0, varargs = 0;  // the implicit variables of macros
};

}  // namespace heddle::text::jinja
