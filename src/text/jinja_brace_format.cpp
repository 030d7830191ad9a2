// "...".format(...)
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "text/jinja_access.h"
#include "text/jinja_field.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Value& format, const std::vector<Value>& positional,
                 const std::vector<std::pair<std::string, Value>>& named)
      : rt_(rt),
        text_(format.text()),
        bytes_(format.bytes()),
        positional_(positional),
        named_(named),
        markup_(format.string().markup) {}

  TracedText run() {
    std::size_t at = 0;
    while (at < bytes_.size() && rt_.step()) {
      const std::size_t brace = std::min(bytes_.find_first_of("{}", at), bytes_.size());
      out_.append(text_, at, brace);
      if (brace == bytes_.size()) break;
      at = brace + 1;
      if (at < bytes_.size() && bytes_[at] == bytes_[brace]) {
        out_.append(text_, brace, at);
        ++at;
        continue;
      }
      if (bytes_[brace] == '}') {
        rt_.fail("format(): single '}' encountered in format string");
        break;
      }
      const std::size_t close = end_of_field(at);
      if (close == std::string_view::npos) {
        rt_.fail("format(): expected '}' before end of string");
        break;
      }
      out_.append(field(std::string(bytes_.substr(at, close - at))));
      at = close + 1;
    }
    return std::move(out_);
  }

 private:
  std::size_t end_of_field(std::size_t at) const {
    int depth = 0;
    for (; at < bytes_.size(); ++at) {
      if (bytes_[at] == '{') ++depth;
      if (bytes_[at] == '}' && depth-- == 0) return at;
    }
    return std::string_view::npos;
  }

  TracedText field(std::string_view body) {
    // The first ':' or '!' outside brackets ends the name.
    std::size_t end = 0;
    for (bool bracket = false; end < body.size() && (bracket || (body[end] != ':' && body[end] != '!')); ++end) {
      if (body[end] == '[') bracket = true;
      if (body[end] == ']') bracket = false;
    }
    Value value = resolve(body.substr(0, end));
    if (!rt_.ok()) return {};
    body.remove_prefix(end);
    char conversion = 0;
    if (!body.empty() && body[0] == '!') {
      if (body.size() < 2 || (body.size() > 2 && body[2] != ':')) return fail("bad conversion");
      conversion = body[1];
      body.remove_prefix(2);
    }
    if (conversion == 'r' || conversion == 'a') {
      value = rt_.text(repr(rt_, value));
    } else if (conversion == 's') {
      value = rt_.text(to_text(rt_, value));
    } else if (conversion != 0) {
      return fail(fmt::format("unknown conversion '{}'", conversion));
    }
    if (!body.empty()) body.remove_prefix(1);
    std::string layout_text(body);
    if (body.find('{') != std::string_view::npos && !nested(body, layout_text)) return {};
    FieldLayout layout;
    if (!parse_layout(layout_text, layout)) return {};
    if (markup_ && (layout.type == 0 || layout.type == 's') && !value.is_number()) {
      return padded(escaped_text(rt_, value), layout, layout.align != 0 ? layout.align : '<');
    }
    return format_value(rt_, value, layout);
  }

  // {:{width}}: fields inside the layout, one level deep.
  bool nested(std::string_view body, std::string& out) {
    out.clear();
    for (std::size_t at = 0; at < body.size(); ++at) {
      if (body[at] != '{') {
        out.push_back(body[at]);
        continue;
      }
      const std::size_t close = body.find('}', at);
      if (close == std::string_view::npos) return fail("unbalanced braces"), false;
      out += to_text(rt_, resolve(body.substr(at + 1, close - at - 1))).bytes();
      at = close;
    }
    return rt_.ok();
  }

  Value resolve(std::string_view name) {
    std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    while (rt_.ok() && end < name.size() && rt_.step()) {
      const bool dot = name[end] == '.';
      const std::size_t stop = dot ? std::min(name.find_first_of(".[", end + 1), name.size()) : name.find(']', end);
      if (stop == std::string_view::npos) return rt_.fail("format(): missing ']' in format string");
      const std::string_view part = name.substr(end + 1, stop - end - 1);
      if (dot) {
        value = attribute(rt_, value, part);
      } else {
        std::size_t at = 0;
        const std::optional<long> index = digits_at(part, at);
        value = item(rt_, value, index && at == part.size() ? Value::integer(*index) : Value::literal(part));
      }
      end = dot ? stop : stop + 1;
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t at = 0;
    std::optional<long> index = name.empty() ? std::optional(static_cast<long>(next_++)) : digits_at(name, at);
    if (index && (name.empty() || at == name.size())) {
      if (*index < static_cast<long>(positional_.size())) return positional_[static_cast<std::size_t>(*index)];
      return rt_.fail(fmt::format("format(): no positional argument {}", *index));
    }
    for (const auto& [key, value] : named_) {
      if (key == name) return value;
    }
    return rt_.fail(fmt::format("format(): no argument '{}'", name));
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  bool parse_layout(std::string_view text, FieldLayout& layout) {
    const std::size_t first = pystr::offset(text, 1);
    const auto aligns = [&](std::size_t at) {
      return at < text.size() && std::string_view("<>^=").find(text[at]) != std::string_view::npos;
    };
    std::size_t at = 0;
    if (first > 0 && aligns(first)) {
      layout.fill = text.substr(0, first);
      layout.align = text[first];
      at = first + 1;
    } else if (aligns(0)) {
      layout.align = text[at++];
    }
    if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos) layout.sign = text[at++];
    if (at < text.size() && text[at] == '#') layout.alternate = true, ++at;
    if (at < text.size() && text[at] == '0') {
      if (layout.align == 0) layout.align = '=', layout.fill.assign(1, '0');
      ++at;
    }
    layout.width = digits_at(text, at).value_or(0);
    if (at < text.size() && (text[at] == ',' || text[at] == '_')) layout.grouping = text[at++];
    if (at < text.size() && text[at] == '.') {
      ++at;
      const std::optional<long> precision = digits_at(text, at);
      if (!precision) return fail("format specifier missing precision"), false;
      layout.precision = *precision;
    }
    if (at < text.size()) layout.type = text[at++];
    if (at != text.size()) return fail(fmt::format("invalid format specifier '{}'", text)), false;
    return charge_field(rt_, layout.width) && charge_field(rt_, layout.precision);
  }

  TracedText fail(const std::string& message) {
    rt_.fail(fmt::format("format(): {}", message));
    return {};
  }

  Runtime& rt_;
  const TracedText& text_;
  std::string_view bytes_;
  const std::vector<Value>& positional_;
  const std::vector<std::pair<std::string, Value>>& named_;
  bool markup_;
  std::size_t next_ = 0;
  TracedText out_;
};

}  // namespace

Value brace_format(Runtime& rt, const Value& format, const std::vector<Value>& positional,
                   const std::vector<std::pair<std::string, Value>>& named) {
  TracedText text = BraceFormatter(rt, format, positional, named).run();
  return rt.text(std::move(text), format.string().markup);
}

}  // namespace heddle::text::jinja
