#include "text/jinja_operators.h"

#include <fmt/format.h>

#include <cmath>

#include "text/jinja_access.h"
#include "text/jinja_format.h"
#include "text/jinja_repr.h"

namespace heddle::text::jinja {
namespace {

constexpr const char* symbols[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

const char* symbol(Operator op) { return symbols[static_cast<std::size_t>(op)]; }

Value unsupported(Runtime& rt, Operator op, const Value& left, const Value& right) {
  if (left.is_undefined()) return rt.fail_undefined(left);
  if (right.is_undefined()) return rt.fail_undefined(right);
  return rt.fail(
      fmt::format("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(left), type_name(right)));
}

Value too_large(Runtime& rt) { return rt.fail("integer result too large"); }

Value power(Runtime& rt, Integer base, Integer exponent, bool request) {
  if (exponent < 0) {
    if (base == 0) return rt.fail("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)), request);
  }
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return too_large(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(rt);
  }
  return Value::integer(result, request);
}

Value integers(Runtime& rt, Operator op, Integer a, Integer b, bool request) {
  Integer out = 0;
  switch (op) {
    case Operator::add:
      return __builtin_add_overflow(a, b, &out) ? too_large(rt) : Value::integer(out, request);
    case Operator::subtract:
      return __builtin_sub_overflow(a, b, &out) ? too_large(rt) : Value::integer(out, request);
    case Operator::multiply:
      return __builtin_mul_overflow(a, b, &out) ? too_large(rt) : Value::integer(out, request);
    case Operator::power:
      return power(rt, a, b, request);
    default:
      break;
  }
  if (b == 0) return rt.fail("division by zero");
  if (op == Operator::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b), request);
  // The minimum divided by -1 overflows; a remainder by -1 is 0 anyway.
  if (b == -1) {
    if (op == Operator::modulo) return Value::integer(0, request);
    return __builtin_sub_overflow(Integer{0}, a, &out) ? too_large(rt) : Value::integer(out, request);
  }
  Integer quotient = a / b;
  Integer remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::integer(op == Operator::modulo ? remainder : quotient, request);
}

Value reals(Runtime& rt, Operator op, double a, double b, bool request) {
  switch (op) {
    case Operator::add:
      return Value::real(a + b, request);
    case Operator::subtract:
      return Value::real(a - b, request);
    case Operator::multiply:
      return Value::real(a * b, request);
    case Operator::power:
      if (a == 0 && b < 0) return rt.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) return rt.fail("a power with a complex result");
      return Value::real(std::pow(a, b), request);
    default:
      break;
  }
  if (b == 0) return rt.fail("division by zero");
  if (op == Operator::divide) return Value::real(a / b, request);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (remainder == 0) remainder = std::copysign(0.0, b);
  if (op == Operator::modulo) return Value::real(remainder, request);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b), request);
  const double whole = std::floor(quotient);
  return Value::real(quotient - whole > 0.5 ? whole + 1 : whole, request);
}

Value add_strings(Runtime& rt, const Value& left, const Value& right) {
  const bool markup = left.string().markup || right.string().markup;
  if (!rt.charge_bytes(left.text().size() + right.text().size())) return {};
  TracedText out;
  out.append(markup ? escaped_text(rt, left) : left.text());
  out.append(markup ? escaped_text(rt, right) : right.text());
  return rt.text(std::move(out), markup);
}

Value add_lists(Runtime& rt, const Value& left, const Value& right) {
  if (!rt.step(left.list().items.size() + right.list().items.size())) return {};
  std::vector<Value> items = left.list().items;
  items.insert(items.end(), right.list().items.begin(), right.list().items.end());
  return rt.list(std::move(items), left.from_request() || right.from_request(), left.list().flavour);
}

Value repeat(Runtime& rt, const Value& sequence, Integer times) {
  if (times < 0) times = 0;
  const std::size_t size = sequence.is_string() ? sequence.text().size() : sequence.list().items.size();
  if (size == 0) times = 0;
  if (times > Integer{1} << 40) return rt.fail_limit("a sequence repeated too often");
  const auto n = static_cast<std::uint64_t>(times);
  if (sequence.is_string()) {
    if (!rt.charge_bytes(size * n) || !rt.step(n)) return {};
    TracedText out;
    for (std::uint64_t i = 0; i < n; ++i) out.append(sequence.text());
    return rt.text(std::move(out), sequence.string().markup);
  }
  if (!rt.step(size * n)) return {};
  std::vector<Value> items;
  items.reserve(size * n);
  for (std::uint64_t i = 0; i < n; ++i) {
    items.insert(items.end(), sequence.list().items.begin(), sequence.list().items.end());
  }
  return rt.list(std::move(items), sequence.from_request(), sequence.list().flavour);
}

bool plain_sequence(const Value& value) {
  return value.is_string() || (value.is(Kind::list) && value.list().flavour <= List::Flavour::tuple);
}

// -1, 0, 1; 2 when one is NaN. Sets an error for what Python doesn't order.
int order(Runtime& rt, Operator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    const Integer a = left.integer(), b = right.integer();
    return a < b ? -1 : a > b;
  }
  if (left.is_number() && right.is_number()) {
    const double a = left.real(), b = right.real();
    return std::isnan(a) || std::isnan(b) ? 2 : a < b ? -1 : a > b;
  }
  if (left.is_string() && right.is_string()) {
    const int c = left.bytes().compare(right.bytes());  // UTF-8 orders as code points do
    return c < 0 ? -1 : c > 0;
  }
  if (left.is(Kind::list) && right.is(Kind::list) && left.list().flavour <= List::Flavour::tuple &&
      left.list().flavour == right.list().flavour) {
    const auto& a = left.list().items;
    const auto& b = right.list().items;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!rt.charge_comparison(a[i], b[i])) return 0;
      if (!equal(a[i], b[i])) return order(rt, op, a[i], b[i]);
    }
    return a.size() < b.size() ? -1 : a.size() > b.size();
  }
  if (left.is_undefined() || right.is_undefined()) {
    unsupported(rt, op, left, right);
  } else {
    rt.fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol(op), type_name(left),
                        type_name(right)));
  }
  return 0;
}

}  // namespace

Value arithmetic(Runtime& rt, Operator op, const Value& left, const Value& right) {
  if (!rt.ok()) return {};
  const bool request = left.from_request() || right.from_request();
  if (left.is_integral() && right.is_integral()) return integers(rt, op, left.integer(), right.integer(), request);
  if (left.is_number() && right.is_number()) return reals(rt, op, left.real(), right.real(), request);
  if (op == Operator::modulo && left.is_string()) return percent_format(rt, left, right);
  if (op == Operator::add) {
    if (left.is_string() && right.is_string()) return add_strings(rt, left, right);
    if (left.is(Kind::list) && right.is(Kind::list) && left.list().flavour == right.list().flavour &&
        left.list().flavour <= List::Flavour::tuple) {
      return add_lists(rt, left, right);
    }
    if (left.is_string() && !right.is_undefined()) {
      return rt.fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
    }
  }
  if (op == Operator::multiply) {
    if (plain_sequence(left) && right.is_integral()) return repeat(rt, left, right.integer());
    if (left.is_integral() && plain_sequence(right)) return repeat(rt, right, left.integer());
  }
  return unsupported(rt, op, left, right);
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is_integral()) return integers(rt, Operator::subtract, 0, value.integer(), value.from_request());
  if (value.is(Kind::real)) return Value::real(-value.real(), value.from_request());
  if (value.is_undefined()) return rt.fail_undefined(value);
  return rt.fail(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

Value positive(Runtime& rt, const Value& value) {
  if (value.is_integral()) return Value::integer(value.integer(), value.from_request());
  if (value.is(Kind::real)) return value;
  if (value.is_undefined()) return rt.fail_undefined(value);
  return rt.fail(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
}

bool compare(Runtime& rt, Operator op, const Value& left, const Value& right) {
  if (!rt.ok()) return false;
  switch (op) {
    case Operator::equal:
      return rt.charge_comparison(left, right) && equal(left, right);
    case Operator::not_equal:
      return rt.charge_comparison(left, right) && !equal(left, right);
    case Operator::in:
      return contains(rt, right, left);
    case Operator::not_in:
      return !contains(rt, right, left);
    default:
      break;
  }
  const int c = order(rt, op, left, right);
  if (c == 2) return false;
  switch (op) {
    case Operator::less:
      return c < 0;
    case Operator::less_equal:
      return c <= 0;
    case Operator::greater:
      return c > 0;
    default:
      return c >= 0;
  }
}

bool less(Runtime& rt, const Value& left, const Value& right) {
  if (!rt.step()) return false;
  return order(rt, Operator::less, left, right) == -1;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (!rt.ok()) return false;
  if (container.is_string()) {
    if (item.is_string()) {
      return rt.charge_search(container.bytes().size()) &&
             container.bytes().find(item.bytes()) != std::string_view::npos;
    }
    rt.fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    return false;
  }
  if (container.is(Kind::dict)) {
    if (!rt.charge_key(item)) return false;
    if (hashable(item)) return container.dict().find(item) != nullptr;
    rt.fail(fmt::format("unhashable type: '{}'", type_name(item)));
    return false;
  }
  if (container.is(Kind::iterator)) {
    Iterator& iterator = container.iterator();
    while (iterator.next < iterator.items.size()) {
      const Value& found = iterator.items[iterator.next++];
      if (!rt.charge_comparison(found, item)) return false;
      if (equal(found, item)) return true;
    }
    return false;
  }
  if (container.is(Kind::list)) {
    for (const Value& found : container.list().items) {
      if (!rt.charge_comparison(found, item)) return false;
      if (equal(found, item)) return true;
    }
    return false;
  }
  if (!container.is_undefined()) rt.fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  return false;
}

TracedText escape_html(Runtime& rt, const TracedText& text) {
  TracedText out;
  const std::string_view bytes = text.bytes();
  if (!rt.charge_bytes(bytes.size())) return out;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string_view entity;
    switch (bytes[at]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      default:
        continue;
    }
    out.append(text, copied, at);
    out.append_derived(entity, text, at, at + 1);
    copied = at + 1;
  }
  out.append(text, copied, bytes.size());
  return out;
}

TracedText escaped_text(Runtime& rt, const Value& value) {
  if (value.is_string() && value.string().markup) return value.text();
  return escape_html(rt, to_text(rt, value));
}

}  // namespace heddle::text::jinja
