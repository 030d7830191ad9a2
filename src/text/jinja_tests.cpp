#include "text/jinja_tests.h"

#include <fmt/format.h>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

using Test = bool (*)(Runtime&, const Value&);

bool remainder_is(Runtime& rt, const Value& value, const Value& divisor, Integer wanted) {
  const Value rest = arithmetic(rt, Operator::modulo, value, divisor);
  return rt.ok() && equal(rest, Value::integer(wanted));
}

// str(value).islower() and the like.
bool text_is(Runtime& rt, const Value& value, pystr::Class which) {
  const TracedText text = to_text(rt, value);
  return rt.step(1 + text.size() / 16) && pystr::is_class(text.bytes(), which);
}

constexpr std::pair<std::string_view, Test> tests[] = {
    {"defined", [](Runtime&, const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](Runtime&, const Value& v) { return v.is_undefined(); }},
    {"none", [](Runtime&, const Value& v) { return v.is_none(); }},
    {"boolean", [](Runtime&, const Value& v) { return v.is(Kind::boolean); }},
    {"true", [](Runtime&, const Value& v) { return v.is(Kind::boolean) && v.boolean(); }},
    {"false", [](Runtime&, const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }},
    {"integer", [](Runtime&, const Value& v) { return v.is(Kind::integer); }},
    {"float", [](Runtime&, const Value& v) { return v.is(Kind::real); }},
    {"number", [](Runtime&, const Value& v) { return v.is_number(); }},
    {"string", [](Runtime&, const Value& v) { return v.is_string(); }},
    {"mapping", [](Runtime&, const Value& v) { return v.is(Kind::dict); }},
    {"iterable", [](Runtime&, const Value& v) { return iterable(v); }},
    {"sequence",
     [](Runtime&, const Value& v) {
       return v.is_undefined() || v.is_string() || v.is(Kind::dict) || (v.is(Kind::list) && v.list().indexable());
     }},
    {"callable", [](Runtime&, const Value& v) { return v.is(Kind::callable) || v.is(Kind::loop) || v.is_undefined(); }},
    {"escaped", [](Runtime&, const Value& v) { return v.is_string() && v.string().markup; }},
    {"odd", [](Runtime& rt, const Value& v) { return remainder_is(rt, v, Value::integer(2), 1); }},
    {"even", [](Runtime& rt, const Value& v) { return remainder_is(rt, v, Value::integer(2), 0); }},
    {"lower", [](Runtime& rt, const Value& v) { return text_is(rt, v, pystr::Class::lower); }},
    {"upper", [](Runtime& rt, const Value& v) { return text_is(rt, v, pystr::Class::upper); }},
    {"filter", [](Runtime&, const Value& v) { return v.is_string() && is_filter(v.bytes()); }},
    {"test", [](Runtime&, const Value& v) { return v.is_string() && is_test(v.bytes()); }},
};

constexpr std::pair<std::string_view, Operator> comparisons[] = {
    {"==", Operator::equal},         {"eq", Operator::equal},
    {"equalto", Operator::equal},    {"!=", Operator::not_equal},
    {"ne", Operator::not_equal},     {">", Operator::greater},
    {"gt", Operator::greater},       {"greaterthan", Operator::greater},
    {">=", Operator::greater_equal}, {"ge", Operator::greater_equal},
    {"<", Operator::less},           {"lt", Operator::less},
    {"lessthan", Operator::less},    {"<=", Operator::less_equal},
    {"le", Operator::less_equal},    {"in", Operator::in},
};

}  // namespace

bool is_test(std::string_view name) {
  for (const auto& [known, test] : tests) {
    if (known == name) return true;
  }
  for (const auto& [known, op] : comparisons) {
    if (known == name) return true;
  }
  return name == "divisibleby" || name == "sameas";
}

bool apply_test(Runtime& rt, std::string_view name, const Value& subject, const Arguments& arguments) {
  if (!rt.ok()) return false;
  for (const auto& [known, test] : tests) {
    if (known != name) continue;
    const Bound none(rt, name, arguments, {});
    return rt.ok() && test(rt, subject);
  }
  for (const auto& [known, op] : comparisons) {
    if (known != name) continue;
    const Bound bound(rt, name, arguments, {"other"}, 1);
    return rt.ok() && compare(rt, op, subject, bound[0]);
  }
  if (name == "divisibleby") {
    const Bound bound(rt, name, arguments, {"num"}, 1);
    return rt.ok() && remainder_is(rt, subject, bound[0], 0);
  }
  if (name == "sameas") {
    const Bound bound(rt, name, arguments, {"other"}, 1);
    return rt.ok() && subject.same_object(bound[0]);
  }
  rt.fail(fmt::format("no test named '{}'", name));
  return false;
}

}  // namespace heddle::text::jinja
