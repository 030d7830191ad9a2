#include "text/jinja_repr.h"

#include <fmt/format.h>

#include "text/jinja_loop.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

// Written text is charged in portions, so that a huge nested value stops early.
class Writer {
 public:
  Writer(Runtime& rt, TracedText& out) : rt_(rt), out_(out) {}

  void put(std::string_view bytes, bool from_request) { out_.append(bytes, from_request); }

  void value(const Value& value) {
    if (!rt_.step()) return;
    const bool request = value.from_request();
    switch (value.kind()) {
      case Kind::undefined:
        return put("Undefined", false);
      case Kind::none:
        return put("None", request);
      case Kind::boolean:
        return put(value.boolean() ? "True" : "False", request);
      case Kind::integer:
        return put(integer_text(value.integer()), request);
      case Kind::real:
        return put(float_text(value.real()), request);
      case Kind::string:
        return string(value);
      case Kind::list:
        return list(value);
      case Kind::dict:
        return dict(value.dict(), request);
      case Kind::iterator:
        return put("<generator object>", false);
      case Kind::name_space:
        return name_space(value.name_space());
      case Kind::loop:
        return put(fmt::format("<LoopContext {}/{}>", value.loop().index + 1, value.loop().items.size()), false);
      case Kind::callable:
        return callable(value.callable());
    }
  }

 private:
  void string(const Value& value) {
    const TracedText& text = value.text();
    const std::string_view bytes = text.bytes();
    const bool single = bytes.find('\'') == std::string_view::npos || bytes.find('"') != std::string_view::npos;
    const char quote = single ? '\'' : '"';
    if (!rt_.charge_bytes(bytes.size())) return;
    if (value.string().markup) put("Markup(", value.from_request());
    put({&quote, 1}, value.from_request());
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t begin = at;
      const char32_t c = pystr::decode(bytes, at);
      std::string escaped;
      if (c == '\\' || c == static_cast<char32_t>(quote)) {
        escaped = {'\\', static_cast<char>(c)};
      } else if (c == '\n') {
        escaped = "\\n";
      } else if (c == '\r') {
        escaped = "\\r";
      } else if (c == '\t') {
        escaped = "\\t";
      } else if (c < 0x20 || c == 0x7F || (c >= 0x80 && c < 0x100 && !pystr::is_printable(c))) {
        escaped = fmt::format("\\x{:02x}", static_cast<unsigned>(c));
      } else if (c >= 0x100 && !pystr::is_printable(c)) {
        escaped = c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<unsigned>(c))
                              : fmt::format("\\U{:08x}", static_cast<unsigned>(c));
      }
      if (escaped.empty()) {
        out_.append(text, begin, at);
      } else {
        out_.append_derived(escaped, text, begin, at);
      }
    }
    put({&quote, 1}, value.from_request());
    if (value.string().markup) put(")", value.from_request());
  }

  void list(const Value& value) {
    const List& list = value.list();
    const bool request = value.from_request();
    using Flavour = List::Flavour;
    if (list.flavour == Flavour::range) {
      put(list.step == 1 ? fmt::format("range({}, {})", list.start, list.stop)
                         : fmt::format("range({}, {}, {})", list.start, list.stop, list.step),
          request);
      return;
    }
    const bool tuple = list.flavour == Flavour::tuple;
    const bool view = !tuple && list.flavour != Flavour::list;
    if (view) put(std::string(type_name(value)) + "(", request);
    put(tuple ? "(" : "[", request);
    bool first = true;
    for (const Value& item : list.items) {
      if (!rt_.ok()) return;
      if (!first) put(", ", request);
      first = false;
      this->value(item);
    }
    put(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]", request);
    if (view) put(")", request);
  }

  void dict(const Dict& dict, bool request) {
    put("{", request);
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!rt_.ok()) return;
      if (!first) put(", ", request);
      first = false;
      this->value(key);
      put(": ", request);
      this->value(value);
    }
    put("}", request);
  }

  // The one value that can hold itself.
  void name_space(const Namespace& space) {
    if (++name_spaces_ > 8) {
      put("<Namespace {...}>", false);
    } else {
      put("<Namespace ", false);
      dict(space.attributes, false);
      put(">", false);
    }
    --name_spaces_;
  }

  void callable(const Callable& callable) {
    switch (callable.what) {
      case Callable::What::macro:
        return put(
            callable.name.empty() ? std::string("<Macro anonymous>") : fmt::format("<Macro '{}'>", callable.name),
            false);
      case Callable::What::method:
        return put(fmt::format("<built-in method {} of {} object>", callable.name, type_name(callable.self)), false);
      default:
        return put(fmt::format("<function {}>", callable.name), false);
    }
  }

  Runtime& rt_;
  TracedText& out_;
  int name_spaces_ = 0;
};

}  // namespace

TracedText to_text(Runtime& rt, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr(rt, value);
}

TracedText repr(Runtime& rt, const Value& value) {
  TracedText out;
  Writer(rt, out).value(value);
  return out;
}

}  // namespace heddle::text::jinja
