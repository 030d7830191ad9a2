// Filters over lists, dicts and whatever else can be walked.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/jinja_tests.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

// The path of `attribute="a.0.b"`: each part is a key, digits are an index.
class Path {
 public:
  Path() = default;
  Path(Runtime& rt, const Value& attribute) {
    if (attribute.is_none() || attribute.is_undefined()) return;
    if (attribute.is_string()) {
      for (const TracedText& part : pystr::split(attribute.text(), ".", -1)) {
        const std::optional<Integer> index =
            pystr::is_class(part.bytes(), pystr::Class::digit) ? parse_integer(part.bytes(), 10) : std::nullopt;
        parts_.push_back(index ? Value::integer(*index) : rt.text(part));
      }
    } else {
      parts_.push_back(attribute);
    }
  }

  Value of(Runtime& rt, Value value, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      value = item(rt, value, part);
      if (otherwise != nullptr && value.is_undefined() && rt.ok()) value = *otherwise;
    }
    return value;
  }

 private:
  std::vector<Value> parts_;
};

Value ignoring_case(Runtime& rt, const Value& value) {
  if (!value.is_string() || !rt.step(value.bytes().size() / 8)) return value;
  return rt.text(pystr::change_case(value.text(), pystr::Case::lower));
}

Value list(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "list", arguments, {});
  return rt.ok() ? rt.list(iterate(rt, input), input.from_request()) : Value();
}

Value first(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "first", arguments, {});
  if (!rt.ok()) return {};
  if (input.is(Kind::iterator)) {
    Iterator& iterator = input.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  } else if (input.is(Kind::list)) {
    if (!input.list().items.empty()) return input.list().items.front();
  } else if (input.is_string()) {
    return input.text().empty() ? Value::undefined("no first item, the sequence was empty")
                                : item(rt, input, Value::integer(0));
  } else {
    const std::vector<Value> items = iterate(rt, input);
    if (!items.empty()) return items.front();
  }
  return Value::undefined("no first item, the sequence was empty");
}

Value last(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "last", arguments, {});
  if (!rt.ok()) return {};
  if (input.is(Kind::iterator)) return rt.fail("'generator' object is not reversible");
  if (input.is_string() && !input.text().empty()) return item(rt, input, Value::integer(-1));
  if (input.is(Kind::list) && !input.list().items.empty()) return input.list().items.back();
  const std::vector<Value> items = iterate(rt, input);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Value reverse(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "reverse", arguments, {});
  if (!rt.ok()) return {};
  if (input.is_string()) return slice(rt, input, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = iterate(rt, input);
  std::reverse(items.begin(), items.end());
  return input.is(Kind::iterator) ? rt.list(std::move(items)) : rt.iterator(std::move(items));
}

Value join(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "join", arguments, {"d", "attribute"});
  if (!rt.ok()) return {};
  const TracedText separator = bound.has(0) ? to_text(rt, bound[0]) : TracedText();
  const Path path = bound.given(1) ? Path(rt, bound[1]) : Path();
  TracedText out;
  bool first = true;
  for (const Value& value : iterate(rt, input)) {
    const TracedText part = to_text(rt, path.of(rt, value));
    if (!rt.step() || !rt.ok() || !rt.charge_bytes(separator.size() + part.size())) return {};
    if (!first) out.append(separator);
    first = false;
    out.append(part);
    if (out.size() > rt.limits().max_string_bytes) break;
  }
  return rt.text(std::move(out));
}

Value items(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound none(rt, "items", arguments, {});
  if (!rt.ok()) return {};
  std::vector<Value> pairs;
  if (input.is(Kind::dict)) {
    for (const auto& [key, value] : input.dict().entries) pairs.push_back(rt.tuple({key, value}, input.from_request()));
  } else if (!input.is_undefined()) {
    return rt.fail(fmt::format("items: expected a mapping, not {}", type_name(input)));
  }
  return rt.iterator(std::move(pairs));
}

// Stable, as Python's sorted(), keys worked out once. Lists of keys order by their first difference, as Python's lists
// do, so equal keys need no order of their own; a single key is compared directly, and equal ones must have an order.
std::vector<Value> sorted(Runtime& rt, std::vector<Value> values, const std::vector<std::vector<Value>>& keys,
                          bool reverse, bool direct) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](std::size_t a, std::size_t b) {
    if (direct) return less(rt, keys[a][0], keys[b][0]);
    for (std::size_t k = 0; k < keys[a].size(); ++k) {
      if (!rt.charge_comparison(keys[a][k], keys[b][k])) return false;
      if (!equal(keys[a][k], keys[b][k])) return less(rt, keys[a][k], keys[b][k]);
    }
    return false;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return reverse ? before(b, a) : before(a, b); });
  std::vector<Value> out;
  out.reserve(values.size());
  for (const std::size_t i : order) out.push_back(std::move(values[i]));
  return out;
}

Value sort(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Path> paths;
  if (bound.given(2) && bound[2].is_string()) {
    for (const TracedText& part : pystr::split(bound[2].text(), ",", -1)) paths.emplace_back(rt, rt.text(part));
  } else {
    paths.push_back(bound.given(2) ? Path(rt, bound[2]) : Path());
  }
  std::vector<Value> values = iterate(rt, input);
  std::vector<std::vector<Value>> keys;
  for (const Value& value : values) {
    if (!rt.step(paths.size())) return {};
    std::vector<Value>& key = keys.emplace_back();
    for (const Path& path : paths) {
      const Value part = path.of(rt, value);
      key.push_back(bound.flag(1, false) ? part : ignoring_case(rt, part));
    }
  }
  if (!rt.ok()) return {};
  return rt.list(sorted(rt, std::move(values), keys, bound.flag(0, false), false), input.from_request());
}

Value dict_sort(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const TracedText by = bound.text(1, "key");
  if (!rt.ok()) return {};
  if (by.bytes() != "key" && by.bytes() != "value") return rt.fail("dictsort: by must be 'key' or 'value'");
  if (input.is_undefined()) return rt.fail_undefined(input);
  if (!input.is(Kind::dict)) return rt.fail(fmt::format("dictsort: expected a mapping, not {}", type_name(input)));
  std::vector<Value> pairs;
  std::vector<std::vector<Value>> keys;
  for (const auto& [key, value] : input.dict().entries) {
    pairs.push_back(rt.tuple({key, value}, input.from_request()));
    const Value& part = by.bytes() == "key" ? key : value;
    keys.push_back({bound.flag(0, false) ? part : ignoring_case(rt, part)});
  }
  if (!rt.ok()) return {};
  return rt.list(sorted(rt, std::move(pairs), keys, bound.flag(2, false), true), input.from_request());
}

// Values seen so far, by Python's equality.
class Seen {
 public:
  bool add(Runtime& rt, const Value& value) {
    if (!rt.charge_key(value)) return false;
    const std::size_t h = hash(value);
    for (auto [at, end] = values_.equal_range(h); at != end; ++at) {
      if (!rt.charge_comparison(at->second, value)) return false;
      if (equal(at->second, value)) return false;
    }
    values_.emplace(h, value);
    return true;
  }

 private:
  std::unordered_multimap<std::size_t, Value> values_;
};

Value unique(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "unique", arguments, {"case_sensitive", "attribute"});
  const Path path = bound.given(1) ? Path(rt, bound[1]) : Path();
  std::vector<Value> out;
  Seen seen;
  for (Value& value : iterate(rt, input)) {
    Value key = path.of(rt, value);
    if (!bound.flag(0, false)) key = ignoring_case(rt, key);
    if (!rt.ok()) return {};
    if (!hashable(key)) return rt.fail(fmt::format("unhashable type: '{}'", type_name(key)));
    if (seen.add(rt, key)) out.push_back(std::move(value));
  }
  return rt.iterator(std::move(out));
}

template <bool largest>
Value extreme(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Path path = bound.given(1) ? Path(rt, bound[1]) : Path();
  const auto key = [&](const Value& value) {
    const Value part = path.of(rt, value);
    return bound.flag(0, false) ? part : ignoring_case(rt, part);
  };
  const std::vector<Value> values = iterate(rt, input);
  if (!rt.ok()) return {};
  if (values.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  std::size_t best = 0;
  Value best_key = key(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Value other = key(values[i]);
    if (!(largest ? less(rt, best_key, other) : less(rt, other, best_key))) continue;
    best = i;
    best_key = other;
  }
  return rt.ok() ? values[best] : Value();
}

Value sum(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "sum", arguments, {"attribute", "start"});
  const Path path = bound.given(0) ? Path(rt, bound[0]) : Path();
  Value total = bound.has(1) ? bound[1] : Value::integer(0);
  if (total.is_string()) return rt.fail("sum: strings can't be summed, use join");
  for (const Value& value : iterate(rt, input)) {
    if (!rt.step()) return {};
    total = arithmetic(rt, Operator::add, total, path.of(rt, value));
  }
  return total;
}

Value map(Runtime& rt, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (!input.truthy()) return rt.iterator(std::move(out));
  if (arguments.positional.empty()) {
    const Bound bound(rt, "map", arguments, {"attribute", "default"}, 1);
    const Path path(rt, bound[0]);
    for (const Value& value : iterate(rt, input)) {
      if (!rt.step()) return {};
      out.push_back(path.of(rt, value, bound.given(1) ? &bound[1] : nullptr));
    }
    return rt.iterator(std::move(out));
  }
  if (!arguments.positional[0].is_string()) return rt.fail("map: expected the name of a filter");
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& value : iterate(rt, input)) {
    if (!rt.step()) return {};
    out.push_back(apply_filter(rt, arguments.positional[0].bytes(), value, rest));
  }
  return rt.iterator(std::move(out));
}

// select, reject and their forms over an attribute.
template <bool keep, bool by_attribute>
Value choose(Runtime& rt, const Value& input, const Arguments& arguments) {
  std::vector<Value> out;
  if (!input.truthy()) return rt.iterator(std::move(out));
  const std::size_t skip = by_attribute ? 1 : 0;
  const auto& given = arguments.positional;
  if (given.size() < skip) return rt.fail("selectattr: the name of the attribute is missing");
  const Path path = by_attribute ? Path(rt, given[0]) : Path();
  const bool tested = given.size() > skip;
  if (tested && !given[skip].is_string()) return rt.fail("select: expected the name of a test");
  Arguments rest;
  if (tested) rest = {{given.begin() + static_cast<std::ptrdiff_t>(skip) + 1, given.end()}, arguments.named};
  for (Value& value : iterate(rt, input)) {
    if (!rt.step()) return {};
    const Value subject = path.of(rt, value);
    const bool passes = tested ? apply_test(rt, given[skip].bytes(), subject, rest) : subject.truthy();
    if (passes == keep) out.push_back(std::move(value));
  }
  return rt.iterator(std::move(out));
}

Value batch(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "batch", arguments, {"linecount", "fill_with"}, 1);
  const long size = bound.integer(0, 1);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (Value& value : iterate(rt, input)) {
    if (static_cast<long>(row.size()) == size) rows.push_back(rt.list(std::exchange(row, {})));
    row.push_back(std::move(value));
  }
  if (!row.empty()) {
    while (bound.given(1) && static_cast<long>(row.size()) < size && rt.step()) row.push_back(bound[1]);
    rows.push_back(rt.list(std::move(row)));
  }
  return rt.iterator(std::move(rows));
}

Value columns(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "slice", arguments, {"slices", "fill_with"}, 1);
  const long n = bound.integer(0, 1);
  const std::vector<Value> values = iterate(rt, input);
  if (!rt.ok()) return {};
  if (n == 0) return rt.fail("division by zero");
  if (n < 0) return rt.iterator({});
  if (!rt.step(static_cast<std::uint64_t>(n))) return {};
  const std::size_t slices = static_cast<std::size_t>(n);
  std::vector<Value> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const bool longer = i < values.size() % slices;
    const std::size_t end = at + values.size() / slices + (longer ? 1 : 0);
    std::vector<Value> part(values.begin() + static_cast<std::ptrdiff_t>(at),
                            values.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.given(1) && !longer) part.push_back(bound[1]);
    out.push_back(rt.list(std::move(part)));
    at = end;
  }
  return rt.iterator(std::move(out));
}

Value group_by(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Bound bound(rt, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  if (!rt.ok()) return {};
  const Path path(rt, bound[0]);
  const Value* otherwise = bound.given(1) ? &bound[1] : nullptr;
  const auto folded = [&](const Value& value) {
    const Value key = path.of(rt, value, otherwise);
    return bound.flag(2, false) ? key : ignoring_case(rt, key);
  };
  std::vector<Value> values = iterate(rt, input);
  std::vector<std::vector<Value>> keys;
  keys.reserve(values.size());
  for (const Value& value : values) keys.push_back({folded(value)});
  if (!rt.ok()) return {};
  values = sorted(rt, std::move(values), keys, false, true);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < values.size() && rt.ok();) {
    const Value key = folded(values[begin]);
    std::size_t end = begin + 1;
    while (end < values.size() && rt.ok() && equal(folded(values[end]), key)) ++end;
    auto group = std::make_shared<List>();
    group->flavour = List::Flavour::tuple;
    group->is_group = true;
    group->items = {path.of(rt, values[begin], otherwise),
                    rt.list({values.begin() + static_cast<std::ptrdiff_t>(begin),
                             values.begin() + static_cast<std::ptrdiff_t>(end)})};
    for (const Value& part : group->items) rt.nest(part, group->nesting);
    groups.push_back(Value::list(std::move(group), false));
    begin = end;
  }
  return rt.list(std::move(groups));
}

constexpr std::pair<std::string_view, Filter> filters[] = {
    {"batch", batch},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"reverse", reverse},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"slice", columns},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter sequence_filter(std::string_view name) {
  for (const auto& [known, filter] : filters) {
    if (known == name) return filter;
  }
  return nullptr;
}

bool is_filter(std::string_view name) { return text_filter(name) != nullptr || sequence_filter(name) != nullptr; }

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments) {
  if (!rt.ok()) return {};
  const Runtime::Depth depth(rt);
  if (!depth.ok()) return {};
  Filter filter = text_filter(name);
  if (filter == nullptr) filter = sequence_filter(name);
  return filter ? filter(rt, input, arguments) : rt.fail(fmt::format("no filter named '{}'", name));
}

}  // namespace heddle::text::jinja
