// "..." % values
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "text/jinja_field.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_repr.h"
#include "text/python_number.h"
#include "text/python_str.h"

namespace heddle::text::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Value& format, const Value& values)
      : rt_(rt), text_(format.text()), bytes_(format.bytes()), values_(values), markup_(format.string().markup) {}

  TracedText run() {
    for (std::size_t at = 0; at < bytes_.size() && rt_.step();) {
      const std::size_t percent = std::min(bytes_.find('%', at), bytes_.size());
      out_.append(text_, at, percent);
      if (percent == bytes_.size()) break;
      at = percent + 1;
      field(at);
    }
    const bool tuple = values_.is(Kind::list) && values_.list().flavour == List::Flavour::tuple;
    // Python takes anything with subscripts but strings and tuples for a mapping, which may have values to spare.
    const bool mapping = values_.is(Kind::dict) || values_.is_undefined() ||
                         (values_.is(Kind::list) && !tuple && values_.list().indexable());
    const bool all = mapping || next_ >= (tuple ? values_.list().items.size() : 1);
    if (rt_.ok() && !all) rt_.fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Value next_value() {
    const bool tuple = values_.is(Kind::list) && values_.list().flavour == List::Flavour::tuple;
    const std::size_t n = tuple ? values_.list().items.size() : 1;
    if (next_ >= n) return rt_.fail("not enough arguments for format string");
    return tuple ? values_.list().items[next_++] : (++next_, values_);
  }

  void field(std::size_t& at) {
    FieldLayout layout;
    std::optional<Value> named;
    if (at < bytes_.size() && bytes_[at] == '(') {
      const std::size_t close = bytes_.find(')', at);
      if (close == std::string_view::npos) return fail("incomplete format key");
      if (!values_.is(Kind::dict)) return fail("format requires a mapping");
      const Value* found = values_.dict().find(bytes_.substr(at + 1, close - at - 1));
      if (found == nullptr) return fail(fmt::format("no value for '{}'", bytes_.substr(at + 1, close - at - 1)));
      named = *found;
      at = close + 1;
    }
    bool left = false, zero = false;
    for (; at < bytes_.size() && std::string_view("-+ #0").find(bytes_[at]) != std::string_view::npos; ++at) {
      left = left || bytes_[at] == '-';
      zero = zero || bytes_[at] == '0';
      layout.alternate = layout.alternate || bytes_[at] == '#';
      if (bytes_[at] == '+' || (bytes_[at] == ' ' && layout.sign != '+')) layout.sign = bytes_[at];
    }
    layout.width = number(at).value_or(0);
    if (layout.width < 0) left = true;
    layout.width = std::abs(layout.width);
    if (at < bytes_.size() && bytes_[at] == '.') {
      ++at;
      layout.precision = std::max(0L, number(at).value_or(0));
    }
    if (!rt_.ok() || !charge_field(rt_, layout.width) || !charge_field(rt_, layout.precision)) return;
    if (at >= bytes_.size()) return fail("incomplete format");
    layout.type = bytes_[at++];
    if (layout.type == '%') return out_.append("%", false);
    const Value value = named ? *named : next_value();
    if (rt_.ok()) convert(value, layout, left, zero);
  }

  std::optional<long> number(std::size_t& at) {
    if (at >= bytes_.size() || bytes_[at] != '*') return digits_at(bytes_, at);
    ++at;
    const Value value = next_value();
    if (!value.is_integral()) return rt_.fail("* wants int"), std::nullopt;
    constexpr Integer most = max_field_width + 1;
    return static_cast<long>(std::clamp(value.integer(), -most, most));
  }

  void convert(const Value& value, FieldLayout layout, bool left, bool zero) {
    switch (layout.type) {
      case 's':
      case 'r':
      case 'a': {
        TracedText text =
            layout.type == 's' ? (markup_ ? escaped_text(rt_, value) : to_text(rt_, value)) : repr(rt_, value);
        if (layout.precision >= 0) {
          text = text.slice(0, pystr::offset(text.bytes(), static_cast<std::size_t>(layout.precision)));
        }
        return out_.append(padded(text, layout, left ? '<' : '>'));
      }
      case 'c': {
        std::string one;
        if (value.is_string() && value.string().length == 1)
          return out_.append(padded(value.text(), layout, left ? '<' : '>'));
        if (!value.is_integral() || value.integer() < 0 || value.integer() > 0x10FFFF ||
            (value.integer() >= 0xD800 && value.integer() < 0xE000)) {
          return fail("%c requires int or char");
        }
        pystr::encode(static_cast<char32_t>(value.integer()), one);
        return out_.append(padded(TracedText(one, value.from_request()), layout, left ? '<' : '>'));
      }
      case 'd':
      case 'i':
      case 'u': {
        if (!value.is_number()) break;
        layout.type = 'd';
        const std::optional<Integer> whole = value.is_integral() ? value.integer() : integer_of(value.real());
        if (!whole) return fail("cannot convert float to integer");
        return out_.append(integer(Value::integer(*whole, value.from_request()), layout, left, zero));
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) break;
        return out_.append(integer(value, layout, left, zero));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) break;
        layout.align = left ? '<' : zero ? '=' : '>';
        if (zero && !left) layout.fill.assign(1, '0');
        return out_.append(format_number(rt_, value, layout));
      default:
        return fail(fmt::format("unsupported format character '{}'", layout.type));
    }
    if (value.is_undefined()) {
      rt_.fail_undefined(value);
    } else {
      fail(fmt::format("%{} format: a number is required, not {}", layout.type, type_name(value)));
    }
  }

  // The precision of an integer is its least number of digits.
  TracedText integer(const Value& value, FieldLayout layout, bool left, bool zero) {
    layout.align = left ? '<' : zero ? '=' : '>';
    if (zero && !left) layout.fill.assign(1, '0');
    if (layout.precision < 0) return format_number(rt_, value, layout);
    bool negative = false;
    std::string digits = number_text(value, layout, negative).value_or("");
    if (static_cast<long>(digits.size()) < layout.precision) {
      digits.insert(0, static_cast<std::size_t>(layout.precision) - digits.size(), '0');
    }
    const std::string sign = negative ? "-" : layout.sign == '+' ? "+" : layout.sign == ' ' ? " " : "";
    return padded(TracedText(sign + digits, value.from_request()), layout, layout.align, sign.size());
  }

  void fail(const std::string& message) { rt_.fail(fmt::format("% formatting: {}", message)); }

  Runtime& rt_;
  const TracedText& text_;
  std::string_view bytes_;
  const Value& values_;
  bool markup_;
  std::size_t next_ = 0;
  TracedText out_;
};

}  // namespace

Value percent_format(Runtime& rt, const Value& format, const Value& values) {
  TracedText text = PercentFormatter(rt, format, values).run();
  return rt.text(std::move(text), format.string().markup);
}

}  // namespace heddle::text::jinja
