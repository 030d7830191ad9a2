#include "text/jinja_runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::text::jinja {

void Runtime::set_error(TemplateError::Kind kind, std::string message) {
  if (failed_) return;
  failed_ = true;
  error_ = {kind, std::move(message)};
}

Value Runtime::fail(std::string message) {
  set_error(TemplateError::Kind::runtime, fmt::format("chat template line {}: {}", line, message));
  return {};
}

Value Runtime::fail_limit(std::string message) {
  set_error(TemplateError::Kind::limit, fmt::format("chat template line {}: {}", line, message));
  return {};
}

Value Runtime::raise(std::string message) {
  set_error(TemplateError::Kind::raised, std::move(message));
  return {};
}

bool Runtime::step(std::uint64_t n) {
  steps_ += n;
  if (steps_ <= limits_.max_steps) return !failed_;
  fail_limit(fmt::format("more than {} steps", limits_.max_steps));
  return false;
}

bool Runtime::charge_bytes(std::uint64_t n) {
  bytes_ += n;
  if (n > limits_.max_string_bytes) {
    fail_limit(fmt::format("a string of more than {} bytes", limits_.max_string_bytes));
    return false;
  }
  if (bytes_ <= limits_.max_bytes) return !failed_;
  fail_limit(fmt::format("more than {} bytes of strings", limits_.max_bytes));
  return false;
}

bool Runtime::charge_comparison(const Value& a, const Value& b) {
  return step(a.kind() == b.kind() ? std::min(nesting(a).weight, nesting(b).weight) : 1);
}

bool Runtime::charge_key(const Value& key) { return step(nesting(key).weight); }

bool Runtime::too_deep() {
  fail_limit(fmt::format("more than {} nested evaluations", limits_.max_recursion));
  return false;
}

Value Runtime::text(TracedText text, bool markup) {
  if (!charge_bytes(text.size())) return {};
  return Value::string(std::move(text), markup);
}

bool Runtime::nest(const Value& inner, Nesting& outer) {
  const Nesting part = nesting(inner);
  outer.depth = std::max(outer.depth, part.depth + 1);
  outer.weight = std::min<std::uint64_t>(outer.weight + part.weight, std::uint64_t{1} << 60);
  if (outer.depth <= limits_.max_depth) return true;
  fail_limit(fmt::format("values nested deeper than {}", limits_.max_depth));
  return false;
}

Value Runtime::list(std::vector<Value> items, bool from_request, List::Flavour flavour) {
  if (!step(items.size() + 1)) return {};
  auto list = std::make_shared<List>();
  for (const Value& item : items) {
    if (!nest(item, list->nesting)) return {};
  }
  list->items = std::move(items);
  list->flavour = flavour;
  return Value::list(std::move(list), from_request);
}

Value Runtime::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  const Integer span = step > 0 ? Integer{stop} - start : Integer{start} - stop;
  const Integer stride = step > 0 ? Integer{step} : -Integer{step};
  const Integer n = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (n > TemplateLimits::max_range) {
    return fail_limit(fmt::format("range() of more than {} elements", TemplateLimits::max_range));
  }
  if (!this->step(static_cast<std::uint64_t>(n) + 1)) return {};
  auto list = std::make_shared<List>();
  list->flavour = List::Flavour::range;
  list->start = start;
  list->stop = stop;
  list->step = step;
  list->nesting.weight += static_cast<std::uint64_t>(n);
  for (Integer i = 0; i < n; ++i) list->items.push_back(Value::integer(start + i * step));
  return Value::list(std::move(list), false);
}

Value Runtime::dict(Dict dict, bool from_request) {
  if (!step(dict.entries.size() + 1)) return {};
  for (const auto& [key, value] : dict.entries) {
    if (!nest(key, dict.nesting) || !nest(value, dict.nesting)) return {};
  }
  return Value::dict(std::make_shared<const Dict>(std::move(dict)), from_request);
}

Value Runtime::iterator(std::vector<Value> items) {
  if (!step(items.size() + 1)) return {};
  auto iterator = std::make_shared<Iterator>();
  for (const Value& item : items) {
    if (!nest(item, iterator->nesting)) return {};
  }
  iterator->items = std::move(items);
  return Value::iterator(std::move(iterator));
}

Value Runtime::name_space(Dict attributes) {
  if (!step(16)) return {};
  namespaces_.push_back({std::move(attributes)});
  return Value::name_space(&namespaces_.back());
}

Value Runtime::callable(Callable callable) {
  if (!step(callable.items.size() + 1) || !nest(callable.self, callable.nesting)) return {};
  for (const Value& item : callable.items) {
    if (!nest(item, callable.nesting)) return {};
  }
  return Value::callable(std::make_shared<Callable>(std::move(callable)));
}

Value Runtime::method(std::string name, const Value& self) {
  Callable callable;
  callable.what = Callable::What::method;
  callable.name = std::move(name);
  callable.self = self;
  return this->callable(std::move(callable));
}

}  // namespace heddle::text::jinja
