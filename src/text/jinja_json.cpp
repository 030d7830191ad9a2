// The JSON side of values: tojson of chat templates (json.dumps), and values from a parsed request.
#include "text/jinja_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cmath>

#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style, TracedText& out) : rt_(rt), style_(style), out_(out) {}

  void value(const Value& value, int level) {
    if (!rt_.step()) return;
    const bool request = value.from_request();
    switch (value.kind()) {
      case Kind::none:
        return out_.append("null", request);
      case Kind::boolean:
        return out_.append(value.boolean() ? "true" : "false", request);
      case Kind::integer:
        return out_.append(integer_text(value.integer()), request);
      case Kind::real:
        return out_.append(real(value.real()), request);
      case Kind::string:
        return string(value.text(), request);
      case Kind::list:
        if (value.list().flavour > List::Flavour::tuple) break;
        return list(value.list(), request, level);
      case Kind::dict:
        return dict(value.dict(), request, level);
      default:
        break;
    }
    rt_.fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void string(const TracedText& text, bool request) {
    const std::string_view bytes = text.bytes();
    if (!rt_.charge_bytes(bytes.size())) return;
    out_.append("\"", request);
    std::size_t copied = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t begin = at;
      const char32_t c = pystr::decode(bytes, at);
      const std::string escaped = escape(c);
      if (escaped.empty()) continue;
      out_.append(text, copied, begin);
      out_.append_derived(escaped, text, begin, at);
      copied = at;
    }
    out_.append(text, copied, bytes.size());
    out_.append("\"", request);
  }

  std::string escape(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    if (c < 0x20) return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    if (!style_.ascii_only || c < 0x7F) return {};
    if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    const unsigned above = static_cast<unsigned>(c) - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
  }

  void line(int level, bool request) {
    if (!style_.indent) return;
    const std::uint64_t size = style_.indent->size() * static_cast<std::uint64_t>(level) + 1;
    if (!rt_.charge_bytes(size)) return;
    std::string text = "\n";
    for (int i = 0; i < level; ++i) text += *style_.indent;
    out_.append(text, request);
  }

  std::string_view item_separator() const {
    return style_.item_separator ? std::string_view(*style_.item_separator) : style_.indent ? "," : ", ";
  }

  void list(const List& list, bool request, int level) {
    if (list.items.empty()) return out_.append("[]", request);
    out_.append("[", request);
    bool first = true;
    for (const Value& item : list.items) {
      if (!rt_.ok()) return;
      if (!first) out_.append(item_separator(), request);
      first = false;
      line(level + 1, request);
      value(item, level + 1);
    }
    line(level, request);
    out_.append("]", request);
  }

  void dict(const Dict& dict, bool request, int level) {
    if (dict.entries.empty()) return out_.append("{}", request);
    std::vector<std::size_t> order(dict.entries.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return less(rt_, dict.entries[a].first, dict.entries[b].first);
      });
    }
    out_.append("{", request);
    bool first = true;
    for (const std::size_t i : order) {
      if (!rt_.ok()) return;
      if (!first) out_.append(item_separator(), request);
      first = false;
      line(level + 1, request);
      key(dict.entries[i].first);
      out_.append(style_.key_separator ? std::string_view(*style_.key_separator) : ": ", request);
      value(dict.entries[i].second, level + 1);
    }
    line(level, request);
    out_.append("}", request);
  }

  void key(const Value& key) {
    if (key.is_string()) return string(key.text(), key.from_request());
    if (!key.is_number() && !key.is_none()) {
      rt_.fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
      return;
    }
    out_.append("\"", key.from_request());
    value(key, 0);
    out_.append("\"", key.from_request());
  }

  Runtime& rt_;
  const JsonStyle& style_;
  TracedText& out_;
};

}  // namespace

TracedText to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  TracedText out;
  JsonWriter(rt, style, out).value(value, 0);
  return out;
}

Value from_json(Runtime& rt, const boost::json::value& json, int level) {
  if (!rt.step()) return {};
  if (level > rt.limits().max_depth)
    return rt.fail_limit(fmt::format("JSON nested deeper than {}", rt.limits().max_depth));
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::none(true);
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool(), true);
    case boost::json::kind::int64:
      return Value::integer(json.get_int64(), true);
    case boost::json::kind::uint64:
      return Value::integer(json.get_uint64(), true);
    case boost::json::kind::double_:
      return Value::real(json.get_double(), true);
    case boost::json::kind::string:
      if (!pystr::valid_utf8(json.get_string())) return rt.fail("a string of the request is not valid UTF-8");
      return rt.text(TracedText(json.get_string(), true));
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const boost::json::value& item : json.get_array()) {
        items.push_back(from_json(rt, item, level + 1));
        if (!rt.ok()) return {};
      }
      return rt.list(std::move(items), true);
    }
    case boost::json::kind::object: {
      Dict dict;
      for (const auto& [key, item] : json.get_object()) {
        if (!pystr::valid_utf8(key)) return rt.fail("a key of the request is not valid UTF-8");
        dict.set(rt.text(TracedText(key, true)), from_json(rt, item, level + 1));
        if (!rt.ok()) return {};
      }
      return rt.dict(std::move(dict), true);
    }
  }
  return {};
}

}  // namespace heddle::text::jinja
