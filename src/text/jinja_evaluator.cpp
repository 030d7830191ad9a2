// The interpreter's expressions and calls.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_globals.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_loop.h"
#include "text/jinja_methods.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/jinja_tests.h"

namespace heddle::text::jinja {

Value Interpreter::lookup(Symbol symbol, Scope& scope) {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    for (const auto& [known, value] : at->variables) {
      if (known == symbol) return value;
    }
  }
  const auto i = static_cast<std::size_t>(symbol);
  if (const std::optional<Value>& value = globals_[i]) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", template_.symbols[i]));
}

Value Interpreter::evaluate(const Expression& e, Scope& scope) {
  const Runtime::Depth depth(rt_);
  rt_.line = e.line;
  if (!depth.ok() || !rt_.step()) return {};
  // Operands first; then the line is this node's again, for the error that the operation may give.
  const auto operand = [&](std::size_t i) {
    Value value = evaluate(*e.parts[i], scope);
    rt_.line = e.line;
    return value;
  };
  switch (e.kind) {
    case Expression::Kind::constant:
      return e.constant;
    case Expression::Kind::name:
      return lookup(e.symbol, scope);
    case Expression::Kind::tuple:
    case Expression::Kind::list:
      return constant_sequence(e, scope);
    case Expression::Kind::dict:
      return dict_literal(e, scope);
    case Expression::Kind::negate: {
      const Value value = operand(0);
      return rt_.ok() ? negate(rt_, value) : Value();
    }
    case Expression::Kind::positive: {
      const Value value = operand(0);
      return rt_.ok() ? positive(rt_, value) : Value();
    }
    case Expression::Kind::negation:
      return Value::boolean(!operand(0).truthy());
    case Expression::Kind::arithmetic: {
      const Value left = operand(0);
      const Value right = operand(1);
      return arithmetic(rt_, e.operators[0], left, right);
    }
    case Expression::Kind::comparison:
      return comparison(e, scope);
    case Expression::Kind::concat:
      return concat(e, scope);
    case Expression::Kind::both: {
      Value left = operand(0);
      return left.truthy() ? operand(1) : left;
    }
    case Expression::Kind::either: {
      Value left = operand(0);
      return left.truthy() ? left : operand(1);
    }
    case Expression::Kind::conditional:
      if (operand(0).truthy()) return operand(1);
      if (e.parts[2]) return operand(2);
      return Value::undefined(fmt::format("the inline if on line {} was false and has no else", e.line));
    case Expression::Kind::attribute: {
      const Value object = operand(0);
      return attribute(rt_, object, e.name);
    }
    case Expression::Kind::item: {
      const Value object = operand(0);
      const Value key = operand(1);
      return item(rt_, object, key);
    }
    case Expression::Kind::slice:
      return slice_of(e, scope);
    case Expression::Kind::call: {
      const Value callee = operand(0);
      const Arguments given = arguments(*e.call, scope);
      rt_.line = e.line;
      return call(callee, given);
    }
    case Expression::Kind::filter:
      return evaluate_filter(e, nullptr, scope);
    case Expression::Kind::test: {
      const Value subject = operand(0);
      const Arguments given = arguments(*e.call, scope);
      rt_.line = e.line;
      return Value::boolean(apply_test(rt_, e.name, subject, given));
    }
  }
  return {};
}

// input: what a chain of filters without a subject of its own starts from.
Value Interpreter::evaluate_filter(const Expression& e, const Value* input, Scope& scope) {
  const Runtime::Depth depth(rt_);
  if (!depth.ok() || !rt_.step()) return {};
  Value subject;
  if (e.parts[0] == nullptr) {
    if (input != nullptr) subject = *input;
  } else if (e.parts[0]->kind == Expression::Kind::filter) {
    subject = evaluate_filter(*e.parts[0], input, scope);
  } else {
    subject = evaluate(*e.parts[0], scope);
  }
  const Arguments given = arguments(*e.call, scope);
  rt_.line = e.line;
  return apply_filter(rt_, e.name, subject, given);
}

Value Interpreter::constant_sequence(const Expression& e, Scope& scope) {
  std::vector<Value> items;
  items.reserve(e.parts.size());
  for (const ExpressionPtr& part : e.parts) items.push_back(evaluate(*part, scope));
  rt_.line = e.line;
  return e.kind == Expression::Kind::tuple ? rt_.tuple(std::move(items)) : rt_.list(std::move(items));
}

Value Interpreter::dict_literal(const Expression& e, Scope& scope) {
  Dict dict;
  for (std::size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    Value key = evaluate(*e.parts[i], scope);
    Value value = evaluate(*e.parts[i + 1], scope);
    rt_.line = e.line;
    if (!rt_.ok() || !rt_.charge_key(key)) return {};
    if (!hashable(key)) return rt_.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    dict.set(std::move(key), std::move(value));
  }
  return rt_.dict(std::move(dict));
}

Value Interpreter::comparison(const Expression& e, Scope& scope) {
  Value left = evaluate(*e.parts[0], scope);
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1], scope);
    rt_.line = e.line;
    if (!compare(rt_, e.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::concat(const Expression& e, Scope& scope) {
  TracedText text;
  for (const ExpressionPtr& part : e.parts) {
    const Value value = evaluate(*part, scope);
    if (!rt_.ok()) return {};
    text.append(to_text(rt_, value));
    if (text.size() > rt_.limits().max_string_bytes) break;
  }
  rt_.line = e.line;
  return rt_.text(std::move(text));
}

Value Interpreter::slice_of(const Expression& e, Scope& scope) {
  const Value object = evaluate(*e.parts[0], scope);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) bounds[i] = e.parts[i + 1] ? evaluate(*e.parts[i + 1], scope) : Value::none();
  rt_.line = e.line;
  return slice(rt_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::arguments(const CallSyntax& call, Scope& scope) {
  Arguments given;
  for (const ExpressionPtr& argument : call.positional) given.positional.push_back(evaluate(*argument, scope));
  if (call.star) {
    for (Value& value : iterate(rt_, evaluate(*call.star, scope))) given.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : call.named) given.named.emplace_back(name, evaluate(*argument, scope));
  if (call.double_star) {
    const Value named = evaluate(*call.double_star, scope);
    if (!rt_.ok()) return given;
    if (!named.is(Kind::dict)) {
      rt_.fail(fmt::format("argument after ** must be a mapping, not {}", type_name(named)));
      return given;
    }
    for (const auto& [key, value] : named.dict().entries) {
      if (!key.is_string()) {
        rt_.fail("keywords must be strings");
        break;
      }
      given.named.emplace_back(key.bytes(), value);
    }
  }
  return given;
}

Value Interpreter::call(const Value& callee, const Arguments& given) {
  if (!rt_.ok()) return {};
  if (callee.is_undefined()) return rt_.fail_undefined(callee);
  if (callee.is(Kind::loop)) return call_loop(callee.loop(), given);
  if (!callee.is(Kind::callable)) return rt_.fail(fmt::format("'{}' object is not callable", type_name(callee)));
  Callable& callable = callee.callable();
  switch (callable.what) {
    case Callable::What::function:
      return call_global(rt_, callable.name, given);
    case Callable::What::method:
      return call_method(rt_, callable, given);
    case Callable::What::macro:
      return call_macro(*callable.macro, callable.name, given);
    case Callable::What::joiner:
      return callable.position++ == 0 ? Value::literal("") : callable.items[0];
    case Callable::What::cycler:
      return rt_.fail("a cycler is not callable: use its next()");
  }
  return {};
}

// Arguments to parameters, as Jinja2 binds them: `caller` may be a parameter or implicit, missing ones are undefined.
void Interpreter::bind(const Signature& signature, const std::string& name, const Arguments& given, Scope& scope) {
  const std::size_t n = signature.parameters.size();
  std::vector<bool> used(given.named.size(), false);
  const auto named = [&](std::string_view wanted) -> const Value* {
    for (std::size_t i = 0; i < given.named.size(); ++i) {
      if (!used[i] && given.named[i].first == wanted) return used[i] = true, &given.named[i].second;
    }
    return nullptr;
  };
  bool found_caller = false;
  for (std::size_t i = 0; i < n; ++i) {
    const Symbol symbol = signature.parameters[i];
    found_caller = found_caller || signature.names[i] == "caller";
    if (i < given.positional.size()) {
      set(scope, symbol, given.positional[i]);
    } else if (const Value* value = named(signature.names[i])) {
      set(scope, symbol, *value);
    } else if (const std::size_t first = n - signature.defaults.size(); i >= first) {
      set(scope, symbol, evaluate(*signature.defaults[i - first], scope));
    } else {
      set(scope, symbol, Value::undefined(fmt::format("parameter '{}' was not provided", signature.names[i])));
    }
  }
  if (signature.takes_caller && !found_caller) {
    const Value* caller = named("caller");
    set(scope, template_.caller, caller ? *caller : Value::undefined("no caller defined"));
  }
  if (signature.takes_kwargs) {
    Dict rest;
    for (std::size_t i = 0; i < given.named.size(); ++i) {
      if (!used[i]) rest.set(Value::literal(given.named[i].first), given.named[i].second);
    }
    set(scope, template_.kwargs, rt_.dict(std::move(rest)));
  } else if (const auto left = std::find(used.begin(), used.end(), false); left != used.end()) {
    rt_.fail(fmt::format("macro '{}' takes no keyword argument '{}'", name,
                         given.named[static_cast<std::size_t>(left - used.begin())].first));
  }
  const std::size_t surplus = std::min(n, given.positional.size());
  if (signature.takes_varargs) {
    set(scope, template_.varargs,
        rt_.tuple({given.positional.begin() + static_cast<std::ptrdiff_t>(surplus), given.positional.end()}));
  } else if (given.positional.size() > n) {
    rt_.fail(fmt::format("macro '{}' takes not more than {} arguments", name, n));
  }
}

Value Interpreter::call_macro(const Macro& macro, const std::string& name, const Arguments& given) {
  const Runtime::Depth depth(rt_);
  if (!depth.ok() || !rt_.step(4)) return {};
  Inner inner(*this, *macro.scope, macro.statement->captured);
  bind(*macro.statement->signature, name, given, *inner);
  if (!rt_.ok()) return {};
  Flow flow = Flow::normal;
  TracedText text = captured(macro.statement->body, *inner, flow);
  return rt_.text(std::move(text));
}

// loop(children): the same statement over other items, its output as a string.
Value Interpreter::call_loop(LoopState& loop, const Arguments& given) {
  const Bound bound(rt_, "loop()", given, {"iterable"}, 1);
  const Runtime::Depth depth(rt_);
  if (!rt_.ok()) return {};
  if (loop.recursive == nullptr) return rt_.fail("the loop must be marked 'recursive' to be called");
  TracedText text;
  TracedText* const outer = std::exchange(out_, &text);
  run_loop(*loop.recursive, bound[0], loop.depth + 1, *loop.scope);
  out_ = outer;
  return rt_.text(std::move(text));
}

}  // namespace heddle::text::jinja
