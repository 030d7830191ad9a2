#include "model/gguf_value.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <iterator>

namespace heddle::model {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place as little-endian");

namespace {

struct TypeFacts {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeFacts, kGgufTypes> kFacts = {{
    {"uint8", 1},
    {"int8", 1},
    {"uint16", 2},
    {"int16", 2},
    {"uint32", 4},
    {"int32", 4},
    {"float32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"uint64", 8},
    {"int64", 8},
    {"float64", 8},
}};

}  // namespace

std::string_view gguf_type_name(GgufType type) { return kFacts[static_cast<size_t>(type)].name; }
size_t gguf_type_bytes(GgufType type) { return kFacts[static_cast<size_t>(type)].bytes; }

std::string GgufValue::type_name() const {
  if (type != GgufType::array) return std::string(gguf_type_name(type));
  return fmt::format("array of {}", gguf_type_name(element));
}

std::string_view GgufValue::as_string() const { return read_string(data); }

std::string quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kShown) out += "...";
  return out + "'";
}

}  // namespace heddle::model
