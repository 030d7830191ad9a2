#pragma once
// A value inside a chat template: Python's None, bool, int, float, str, list (and tuple, dict views, range), dict, and
// Jinja2's undefined, plus what a template can call. Cheap to copy. Everything but namespaces, iterators, loops and
// cyclers is immutable, so values may be shared between threads when they hold none of those; and no value can contain
// itself. Each value knows whether it came from the request.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/traced_text.h"

namespace heddle::text::jinja {

using Integer = __int128;  // Python's are unbounded; a result past 128 bits is an error

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  dict,
  iterator,    // what filters such as map give: can be walked once, is always true
  name_space,  // the only value that a template can change
  loop,
  callable,
};

struct String;
struct List;
struct Dict;
struct Iterator;
struct Namespace;
struct LoopState;
struct Callable;

class Value {
 public:
  Value() = default;  // undefined

  static Value undefined(std::string why, bool unsafe = false);
  static Value none(bool from_request = false) { return Value(Kind::none, from_request); }
  static Value boolean(bool value, bool from_request = false);
  static Value integer(Integer value, bool from_request = false);
  static Value real(double value, bool from_request = false);
  static Value string(TracedText text, bool markup = false);
  static Value literal(std::string_view text) { return string(TracedText(text, false)); }
  static Value list(std::shared_ptr<const List> list, bool from_request);
  static Value dict(std::shared_ptr<const Dict> dict, bool from_request);
  static Value iterator(std::shared_ptr<Iterator> iterator);
  static Value name_space(Namespace* space);  // owned by the render
  static Value loop(std::shared_ptr<LoopState> loop);
  static Value callable(std::shared_ptr<Callable> callable);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool from_request() const { return from_request_; }
  bool truthy() const;

  // Each needs its kind; integer() also takes a bool, real() any number.
  bool boolean() const { return low_ != 0; }
  Integer integer() const;
  double real() const;
  const String& string() const;
  const TracedText& text() const;
  std::string_view bytes() const { return text().bytes(); }
  const List& list() const;
  const Dict& dict() const;
  Iterator& iterator() const;
  Namespace& name_space() const;
  LoopState& loop() const;
  Callable& callable() const;
  std::string undefined_reason() const;
  bool is_unsafe() const;  // undefined because the sandbox forbids it

  // Python's `is`: the same object, or the same small constant.
  bool same_object(const Value& other) const;

 private:
  explicit Value(Kind kind, bool from_request) : kind_(kind), from_request_(from_request) {}

  Kind kind_ = Kind::undefined;
  bool from_request_ = false;
  std::uint64_t low_ = 0;  // boolean, integer, or the bits of a double
  std::uint64_t high_ = 0;
  std::shared_ptr<void> object_;
};

// How much hangs below a value that holds others. Since parts may be shared, the weight can be far more than what is in
// memory; it bounds what a walk costs, and the depth bounds every recursion, destruction included.
struct Nesting {
  int depth = 1;             // 1 + that of the deepest part
  std::uint64_t weight = 1;  // 1 + that of all parts; saturates
};

struct String {
  TracedText text;
  std::size_t length = 0;  // in code points
  bool markup = false;     // made by |safe or |escape: escapes what it is joined with
};

struct List {
  enum class Flavour : std::uint8_t { list, tuple, range, dict_keys, dict_values, dict_items };
  std::vector<Value> items;
  Flavour flavour = Flavour::list;
  bool is_group = false;  // a tuple from groupby: its two items have the names grouper and list
  Nesting nesting;
  std::int64_t start = 0, stop = 0, step = 1;  // of a range, for its repr
  bool indexable() const { return flavour <= Flavour::range; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order
  Nesting nesting;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);

 private:
  template <class Equal>
  std::size_t position(std::size_t hash, const Equal& equal) const;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> entry, for dicts past a few entries
};

struct Iterator {
  std::vector<Value> items;
  Nesting nesting;
  std::size_t next = 0;
};

struct Namespace {
  Dict attributes;
};

struct Macro;

struct Callable {
  enum class What : std::uint8_t { function, method, macro, cycler, joiner };
  What what = What::function;
  std::string name;
  Value self;                    // method: the object
  const Macro* macro = nullptr;  // owned by the render
  std::vector<Value> items;      // cycler
  Nesting nesting;
  std::size_t position = 0;  // cycler, joiner: how often it was asked
};

const char* type_name(const Value& value);   // Python's
bool equal(const Value& a, const Value& b);  // Python's ==
std::size_t hash(const Value& value);        // equal values have equal hashes
bool hashable(const Value& value);
// Length, or nothing for what has none.
std::optional<std::size_t> length(const Value& value);
Nesting nesting(const Value& value);  // depth 0 for what holds nothing

}  // namespace heddle::text::jinja
