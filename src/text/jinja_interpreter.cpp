#include "text/jinja_interpreter.h"

#include <fmt/format.h>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_globals.h"
#include "text/jinja_loop.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"

namespace heddle::text::jinja {

Interpreter::Inner::Inner(Interpreter& interpreter, Scope& parent, bool captured) : scope_(&own_) {
  if (captured && interpreter.rt_.step(16)) scope_ = &interpreter.scopes_.emplace_back();
  scope_->parent = &parent;
}

TracedText Interpreter::run() {
  TracedText text;
  out_ = &text;
  for (const std::string& name : template_.symbols) {
    const auto found = variables_.find(name);
    globals_.push_back(found != variables_.end() ? std::optional(found->second) : global_function(rt_, name));
  }
  Scope& root = scopes_.emplace_back();
  execute(template_.body, root);
  out_ = nullptr;
  return text;
}

void Interpreter::write(const TracedText& text) {
  if (!rt_.ok()) return;
  if (out_->size() + text.size() > rt_.limits().max_output_bytes) {
    rt_.fail_limit(fmt::format("more than {} bytes of output", rt_.limits().max_output_bytes));
    return;
  }
  if (rt_.charge_bytes(text.size())) out_->append(text);
}

Interpreter::Flow Interpreter::execute(const Body& body, Scope& scope) {
  for (const auto& statement : body) {
    if (!rt_.ok()) break;
    if (const Flow flow = execute(*statement, scope); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope& scope) {
  const Runtime::Depth depth(rt_);
  rt_.line = statement.line;
  if (!depth.ok() || !rt_.step()) return Flow::normal;
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.text.text());
      break;
    case Statement::Kind::print: {
      const Value value = evaluate(*statement.value, scope);
      if (rt_.ok()) write(to_text(rt_, value));
      break;
    }
    case Statement::Kind::choice:
      return choose(statement, scope);
    case Statement::Kind::loop:
      return loop(statement, scope);
    case Statement::Kind::assign: {
      const Value value = evaluate(*statement.value, scope);
      if (rt_.ok()) assign(*statement.target, value, scope);
      break;
    }
    case Statement::Kind::assign_block:
      return assign_block(statement, scope);
    case Statement::Kind::macro:
      define_macro(statement, scope);
      break;
    case Statement::Kind::call_block:
      call_block(statement, scope);
      break;
    case Statement::Kind::filter_block:
      return filter_block(statement, scope);
    case Statement::Kind::with:
      return with(statement, scope);
    case Statement::Kind::scope:
      return scoped(statement, scope);
    case Statement::Kind::evaluate:
      evaluate(*statement.value, scope);
      break;
    case Statement::Kind::stop_loop:
      return Flow::stop_loop;
    case Statement::Kind::next_turn:
      return Flow::next_turn;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::choose(const Statement& statement, Scope& scope) {
  for (const auto& [condition, then] : statement.branches) {
    const bool chosen = evaluate(*condition, scope).truthy();
    if (!rt_.ok()) return Flow::normal;
    if (chosen) return execute(then, scope);
  }
  return execute(statement.otherwise, scope);
}

Interpreter::Flow Interpreter::loop(const Statement& statement, Scope& scope) {
  const Value iterable = evaluate(*statement.value, scope);
  return run_loop(statement, iterable, 0, scope);
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, const Value& iterable, int depth, Scope& scope) {
  auto state = std::make_shared<LoopState>();
  state->items = iterate(rt_, iterable);
  if (statement.filter) {
    std::vector<Value> passed;
    for (Value& item : state->items) {
      Inner inner(*this, scope, statement.captured);
      assign(*statement.target, item, *inner);
      const bool passes = evaluate(*statement.filter, *inner).truthy();
      if (!rt_.ok()) return Flow::normal;
      if (passes) passed.push_back(std::move(item));
    }
    state->items = std::move(passed);
  }
  for (const Value& item : state->items) {
    if (!rt_.nest(item, state->nesting)) return Flow::normal;
  }
  if (state->items.empty()) return rt_.ok() ? execute(statement.otherwise, scope) : Flow::normal;
  state->depth = depth;
  if (statement.recursive) {
    state->recursive = &statement;
    state->scope = &scope;
  }
  for (; state->index < state->items.size() && rt_.step(); ++state->index) {
    Inner inner(*this, scope, statement.captured);
    set(*inner, statement.symbol, Value::loop(state));
    assign(*statement.target, state->items[state->index], *inner);
    if (execute(statement.body, *inner) == Flow::stop_loop || !rt_.ok()) break;
  }
  if (state->index >= state->items.size()) state->index = state->items.size() - 1;
  state->ended = true;
  state->last_changed.clear();
  return Flow::normal;
}

Interpreter::Flow Interpreter::with(const Statement& statement, Scope& scope) {
  std::vector<Value> values;
  for (const auto& [target, value] : statement.assignments) values.push_back(evaluate(*value, scope));
  Inner inner(*this, scope, statement.captured);
  for (std::size_t i = 0; i < values.size() && rt_.ok(); ++i)
    assign(*statement.assignments[i].first, values[i], *inner);
  return rt_.ok() ? execute(statement.body, *inner) : Flow::normal;
}

Interpreter::Flow Interpreter::scoped(const Statement& statement, Scope& scope) {
  Inner inner(*this, scope, statement.captured);
  return execute(statement.body, *inner);
}

TracedText Interpreter::captured(const Body& body, Scope& scope, Flow& flow) {
  TracedText text;
  TracedText* const outer = std::exchange(out_, &text);
  flow = execute(body, scope);
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::assign_block(const Statement& statement, Scope& scope) {
  Flow flow = Flow::normal;
  Value value;
  {
    Inner inner(*this, scope, statement.captured);
    value = rt_.text(captured(statement.body, *inner, flow));
    if (flow != Flow::normal) return flow;
    if (statement.value) value = evaluate_filter(*statement.value, &value, *inner);
  }
  if (rt_.ok()) assign(*statement.target, value, scope);
  return Flow::normal;
}

Interpreter::Flow Interpreter::filter_block(const Statement& statement, Scope& scope) {
  Flow flow = Flow::normal;
  Inner inner(*this, scope, statement.captured);
  const Value value = rt_.text(captured(statement.body, *inner, flow));
  if (flow != Flow::normal) return flow;
  const Value filtered = evaluate_filter(*statement.value, &value, *inner);
  if (rt_.ok()) write(to_text(rt_, filtered));
  return Flow::normal;
}

Value Interpreter::make_macro(const Statement& statement, const std::string& name, Scope& scope) {
  if (!rt_.step(16)) return {};
  macros_.push_back({&statement, &scope});
  Callable made;
  made.what = Callable::What::macro;
  made.name = name;
  made.macro = &macros_.back();
  return rt_.callable(std::move(made));
}

void Interpreter::define_macro(const Statement& statement, Scope& scope) {
  set(scope, statement.symbol, make_macro(statement, statement.name, scope));
}

void Interpreter::call_block(const Statement& statement, Scope& scope) {
  const Expression& target = *statement.value;
  const Value callee = evaluate(*target.parts[0], scope);
  Arguments given = arguments(*target.call, scope);
  given.named.emplace_back("caller", make_macro(statement, "caller", scope));
  rt_.line = statement.line;
  const Value result = call(callee, given);
  if (rt_.ok()) write(to_text(rt_, result));
}

void Interpreter::set(Scope& scope, Symbol symbol, Value value) {
  for (auto& [known, old] : scope.variables) {
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  }
  scope.variables.emplace_back(symbol, std::move(value));
}

void Interpreter::assign(const Expression& target, const Value& value, Scope& scope) {
  if (!rt_.ok()) return;
  rt_.line = target.line;
  switch (target.kind) {
    case Expression::Kind::name:
      return set(scope, target.symbol, value);
    case Expression::Kind::attribute: {
      const Value space = lookup(target.parts[0]->symbol, scope);
      if (!space.is(Kind::name_space)) {
        rt_.fail(fmt::format("can't set '{}': '{}' is not a namespace", target.name, target.parts[0]->name));
      } else if (target.name.starts_with('_')) {
        rt_.fail(fmt::format("a namespace can't hold '{}': the name begins with an underscore", target.name));
      } else {
        space.name_space().attributes.set(Value::literal(target.name), value);
      }
      return;
    }
    default:
      break;
  }
  const std::vector<Value> parts = iterate(rt_, value);
  if (!rt_.ok()) return;
  if (parts.size() != target.parts.size()) {
    rt_.fail(fmt::format("expected {} values to unpack, got {}", target.parts.size(), parts.size()));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.parts[i], parts[i], scope);
}

}  // namespace heddle::text::jinja
