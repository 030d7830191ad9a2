#pragma once
// What one render shares with every operation: limits, the first error, the clock. Errors are sticky: the first one
// stays, operations after it give undefined, and every loop looks at ok(). One render, one thread.
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja_value.h"

namespace heddle::text::jinja {

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, std::chrono::system_clock::time_point now) : limits_(limits), now_(now) {}

  bool ok() const { return !failed_; }
  const TemplateError& error() const { return error_; }

  // All return undefined, so that an operation can end with `return rt.fail(...)`.
  Value fail(std::string message);        // carries the current line
  Value fail_limit(std::string message);  // likewise
  Value raise(std::string message);       // raise_exception: the text as it is
  Value fail_undefined(const Value& undefined) { return fail(undefined.undefined_reason()); }

  // Charge work before it is done; false (and an error) past the limit.
  bool step(std::uint64_t n = 1);
  bool charge_bytes(std::uint64_t n);
  bool charge_search(std::size_t bytes) { return step(1 + bytes / 64); }
  bool charge_comparison(const Value& a, const Value& b);
  bool charge_key(const Value& key);  // before it is hashed

  Value text(TracedText text, bool markup = false);
  Value list(std::vector<Value> items, bool from_request = false, List::Flavour flavour = List::Flavour::list);
  Value tuple(std::vector<Value> items, bool from_request = false) {
    return list(std::move(items), from_request, List::Flavour::tuple);
  }
  // At most TemplateLimits::max_range elements; the step is not 0.
  Value range(std::int64_t start, std::int64_t stop, std::int64_t step);
  Value dict(Dict dict, bool from_request = false);
  Value iterator(std::vector<Value> items);
  Value name_space(Dict attributes);
  Value callable(Callable callable);
  Value method(std::string name, const Value& self);
  // Puts `inner` inside something with this nesting; false (and an error) when that is nested too deep.
  bool nest(const Value& inner, Nesting& outer);

  // Nesting of expressions, statements and calls.
  class Depth {
   public:
    explicit Depth(Runtime& rt) : rt_(rt), ok_(++rt.depth_ <= rt.limits_.max_recursion || rt.too_deep()) {}
    ~Depth() { --rt_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    bool ok() const { return ok_; }

   private:
    Runtime& rt_;
    bool ok_;
  };

  const TemplateLimits& limits() const { return limits_; }
  std::chrono::system_clock::time_point now() const { return now_; }
  int line = 0;  // of the node being evaluated

 private:
  bool too_deep();
  void set_error(TemplateError::Kind kind, std::string message);

  const TemplateLimits& limits_;
  std::chrono::system_clock::time_point now_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
  int depth_ = 0;
  bool failed_ = false;
  TemplateError error_{};
  std::deque<Namespace> namespaces_;  // own the namespaces: they may hold themselves
};

}  // namespace heddle::text::jinja
