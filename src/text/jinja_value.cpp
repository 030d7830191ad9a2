#include "text/jinja_value.h"

#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "text/jinja_loop.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

constexpr std::size_t index_from = 9;  // entries; a shorter dict is searched in order

struct Reason {
  std::string text;
  bool unsafe;
};

std::size_t mix(std::size_t a, std::size_t b) { return (a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2))); }

bool equal_number(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.real() == b.real();
}

bool equal_dict(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

bool equal_list(const List& a, const List& b) {
  if (a.flavour != b.flavour || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i])) return false;
  }
  return true;
}

}  // namespace

Value Value::undefined(std::string why, bool unsafe) {
  Value value;
  value.object_ = std::make_shared<Reason>(Reason{std::move(why), unsafe});
  return value;
}

Value Value::boolean(bool value, bool from_request) {
  Value out(Kind::boolean, from_request);
  out.low_ = value;
  return out;
}

Value Value::integer(Integer value, bool from_request) {
  Value out(Kind::integer, from_request);
  out.low_ = static_cast<std::uint64_t>(value);
  out.high_ = static_cast<std::uint64_t>(value >> 64);
  return out;
}

Value Value::real(double value, bool from_request) {
  Value out(Kind::real, from_request);
  out.low_ = std::bit_cast<std::uint64_t>(value);
  return out;
}

Value Value::string(TracedText text, bool markup) {
  Value out(Kind::string, text.any_from_request());
  const std::size_t n = pystr::length(text.bytes());
  out.object_ = std::make_shared<String>(String{std::move(text), n, markup});
  return out;
}

Value Value::list(std::shared_ptr<const List> list, bool from_request) {
  Value out(Kind::list, from_request);
  out.object_ = std::const_pointer_cast<List>(std::move(list));
  return out;
}

Value Value::dict(std::shared_ptr<const Dict> dict, bool from_request) {
  Value out(Kind::dict, from_request);
  out.object_ = std::const_pointer_cast<Dict>(std::move(dict));
  return out;
}

Value Value::iterator(std::shared_ptr<Iterator> iterator) {
  Value out(Kind::iterator, false);
  out.object_ = std::move(iterator);
  return out;
}

Value Value::name_space(Namespace* space) {
  Value out(Kind::name_space, false);
  out.object_ = std::shared_ptr<void>(std::shared_ptr<void>(), space);  // aliases without owning
  return out;
}

Value Value::loop(std::shared_ptr<LoopState> loop) {
  Value out(Kind::loop, false);
  out.object_ = std::move(loop);
  return out;
}

Value Value::callable(std::shared_ptr<Callable> callable) {
  Value out(Kind::callable, false);
  out.object_ = std::move(callable);
  return out;
}

bool Value::truthy() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return (low_ | high_) != 0;
    case Kind::real:
      return real() != 0.0;
    case Kind::string:
      return !text().empty();
    case Kind::list:
      return !list().items.empty();
    case Kind::dict:
      return !dict().entries.empty();
    case Kind::loop:
      return !loop().items.empty();
    case Kind::iterator:
    case Kind::name_space:
    case Kind::callable:
      return true;
  }
  return false;
}

Integer Value::integer() const {
  HEDDLE_CHECK(is_integral());
  return static_cast<Integer>(static_cast<unsigned __int128>(high_) << 64 | low_);
}

double Value::real() const {
  if (kind_ == Kind::real) return std::bit_cast<double>(low_);
  return static_cast<double>(integer());
}

const String& Value::string() const {
  HEDDLE_CHECK(kind_ == Kind::string);
  return *static_cast<const String*>(object_.get());
}
const TracedText& Value::text() const { return string().text; }
const List& Value::list() const {
  HEDDLE_CHECK(kind_ == Kind::list);
  return *static_cast<const List*>(object_.get());
}
const Dict& Value::dict() const {
  HEDDLE_CHECK(kind_ == Kind::dict);
  return *static_cast<const Dict*>(object_.get());
}
Iterator& Value::iterator() const {
  HEDDLE_CHECK(kind_ == Kind::iterator);
  return *static_cast<Iterator*>(object_.get());
}
Namespace& Value::name_space() const {
  HEDDLE_CHECK(kind_ == Kind::name_space);
  return *static_cast<Namespace*>(object_.get());
}
LoopState& Value::loop() const {
  HEDDLE_CHECK(kind_ == Kind::loop);
  return *static_cast<LoopState*>(object_.get());
}
Callable& Value::callable() const {
  HEDDLE_CHECK(kind_ == Kind::callable);
  return *static_cast<Callable*>(object_.get());
}

std::string Value::undefined_reason() const {
  return kind_ == Kind::undefined && object_ ? static_cast<const Reason*>(object_.get())->text : "value is undefined";
}

bool Value::is_unsafe() const {
  return kind_ == Kind::undefined && object_ && static_cast<const Reason*>(object_.get())->unsafe;
}

bool Value::same_object(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (object_ || other.object_) {
    if (kind_ == Kind::string) return bytes() == other.bytes();  // as if interned
    return object_ == other.object_;
  }
  return low_ == other.low_ && high_ == other.high_;
}

template <class Equal>
std::size_t Dict::position(std::size_t hash, const Equal& equal) const {
  if (entries.size() < index_from) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first)) return i;
    }
    return entries.size();
  }
  for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
    if (equal(entries[at->second].first)) return at->second;
  }
  return entries.size();
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) return nullptr;
  const std::size_t i =
      position(entries.size() < index_from ? 0 : hash(key), [&](const Value& other) { return equal(key, other); });
  return i < entries.size() ? &entries[i].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const std::size_t i = position(entries.size() < index_from ? 0 : std::hash<std::string_view>()(key),
                                 [&](const Value& other) { return other.is_string() && other.bytes() == key; });
  return i < entries.size() ? &entries[i].second : nullptr;
}

void Dict::set(Value key, Value value) {
  const std::size_t h = entries.size() + 1 < index_from ? 0 : hash(key);
  const std::size_t i = position(h, [&](const Value& other) { return equal(key, other); });
  if (i < entries.size()) {
    entries[i].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == index_from) {
    for (std::size_t n = 0; n < entries.size(); ++n) index_.emplace(hash(entries[n].first), n);
  } else if (entries.size() > index_from) {
    index_.emplace(h, entries.size() - 1);
  }
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.string().markup ? "Markup" : "str";
    case Kind::list: {
      constexpr const char* names[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
      return names[static_cast<std::size_t>(value.list().flavour)];
    }
    case Kind::dict:
      return "dict";
    case Kind::iterator:
      return "generator";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable:
      return value.callable().what == Callable::What::macro ? "Macro" : "function";
  }
  return "";
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_number(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.bytes() == b.bytes();
    case Kind::list:
      return equal_list(a.list(), b.list());
    case Kind::dict:
      return equal_dict(a.dict(), b.dict());
    default:
      return a.same_object(b);
  }
}

bool hashable(const Value& value) {
  if (value.is(Kind::dict)) return false;
  if (!value.is(Kind::list)) return true;
  if (value.list().flavour != List::Flavour::tuple) return value.list().flavour == List::Flavour::range;
  for (const Value& item : value.list().items) {
    if (!hashable(item)) return false;
  }
  return true;
}

std::size_t hash(const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      return std::hash<std::string_view>()(value.bytes());
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return std::hash<double>()(value.real());
    case Kind::list: {
      std::size_t h = value.list().items.size();
      for (const Value& item : value.list().items) h = mix(h, hash(item));
      return h;
    }
    default:
      return static_cast<std::size_t>(value.kind());
  }
}

std::optional<std::size_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.string().length;
    case Kind::list:
      return value.list().items.size();
    case Kind::dict:
      return value.dict().entries.size();
    case Kind::loop:
      return value.loop().items.size();
    default:
      return std::nullopt;
  }
}

Nesting nesting(const Value& value) {
  switch (value.kind()) {
    case Kind::list:
      return value.list().nesting;
    case Kind::dict:
      return value.dict().nesting;
    case Kind::iterator:
      return value.iterator().nesting;
    case Kind::loop:
      return value.loop().nesting;
    case Kind::callable:
      return value.callable().nesting;
    case Kind::string:
      return {0, 1 + value.bytes().size() / 64};
    default:
      return {0, 1};  // a namespace too: it is owned elsewhere
  }
}

}  // namespace heddle::text::jinja
