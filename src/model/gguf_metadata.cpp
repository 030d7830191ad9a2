#include "model/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace heddle::model {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;  // the specification's limit
constexpr uint64_t kMinPairBytes =
    8 + 1 + sizeof(uint32_t) + 1;  // key length, one byte of key, type, one byte of value

uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

// Checks the `count` elements of an array at the cursor and passes them. Empty when they are sound.
std::optional<std::string> check_elements(ByteCursor& cursor, GgufType element, uint64_t count) {
  if (element == GgufType::array) return "is a nested array, which is not supported";
  const auto too_long = [&] {
    return fmt::format("is an array of {} {} values, but only {} bytes of the file are left", count,
                       gguf_type_name(element), cursor.left());
  };
  if (element == GgufType::string) {
    if (count > cursor.left() / sizeof(uint64_t)) return too_long();
    for (uint64_t i = 0; i < count; ++i) {
      if (!cursor.string()) return fmt::format("string {} of {} runs past the end of the file", i, count);
    }
    return std::nullopt;
  }
  if (count > cursor.left() / gguf_type_bytes(element)) return too_long();
  if (element == GgufType::boolean) {
    const std::byte* values = cursor.here();
    for (uint64_t i = 0; i < count; ++i) {
      if (std::to_integer<unsigned>(values[i]) > 1)
        return fmt::format("element {} is a bool that is neither 0 nor 1", i);
    }
  }
  cursor.skip(count * gguf_type_bytes(element));
  return std::nullopt;
}

// Checks the value at the cursor, type first, and passes it. Empty when it is sound.
std::optional<std::string> check_value(ByteCursor& cursor) {
  const std::optional<uint32_t> type_number = cursor.number<uint32_t>();
  if (!type_number) return "the file ends inside this key's type";
  if (*type_number >= kGgufTypes) return fmt::format("has the unknown value type {}", *type_number);
  const auto type = static_cast<GgufType>(*type_number);
  if (type == GgufType::string) {
    if (cursor.string()) return std::nullopt;
    return "its string runs past the end of the file";
  }
  if (type == GgufType::array) {
    const std::optional<uint32_t> element = cursor.number<uint32_t>();
    const std::optional<uint64_t> count = element ? cursor.number<uint64_t>() : std::nullopt;
    if (!count) return "the file ends inside this key's array header";
    if (*element >= kGgufTypes) return fmt::format("is an array of the unknown value type {}", *element);
    return check_elements(cursor, static_cast<GgufType>(*element), *count);
  }
  const std::byte* value = cursor.here();
  if (!cursor.skip(gguf_type_bytes(type))) return "the file ends inside this key's value";
  if (type == GgufType::boolean && std::to_integer<unsigned>(*value) > 1) return "is a bool that is neither 0 nor 1";
  return std::nullopt;
}

// The value behind a key; its type word was checked.
GgufValue value_at(const std::byte* type_place) {
  const auto type = static_cast<GgufType>(read_number<uint32_t>(type_place));
  if (type != GgufType::array) return {type, type, 1, type_place + sizeof(uint32_t)};
  const std::byte* element_place = type_place + sizeof(uint32_t);
  const std::byte* count_place = element_place + sizeof(uint32_t);
  return {type, static_cast<GgufType>(read_number<uint32_t>(element_place)), read_number<uint64_t>(count_place),
          count_place + sizeof(uint64_t)};
}

// An integer of any type as uint32; empty when it is none, or does not fit.
std::optional<uint32_t> integer_at(GgufType type, const std::byte* at) {
  const auto in_range = [](int64_t value) -> std::optional<uint32_t> {
    if (value < 0 || value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    return static_cast<uint32_t>(value);
  };
  switch (type) {
    case GgufType::u8:
      return read_number<uint8_t>(at);
    case GgufType::u16:
      return read_number<uint16_t>(at);
    case GgufType::u32:
      return read_number<uint32_t>(at);
    case GgufType::i8:
      return in_range(read_number<int8_t>(at));
    case GgufType::i16:
      return in_range(read_number<int16_t>(at));
    case GgufType::i32:
      return in_range(read_number<int32_t>(at));
    case GgufType::i64:
      return in_range(read_number<int64_t>(at));
    case GgufType::u64: {
      const auto value = read_number<uint64_t>(at);
      if (value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
      return static_cast<uint32_t>(value);
    }
    default:
      return std::nullopt;
  }
}

bool is_integer(GgufType type) {
  return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::boolean && type != GgufType::string &&
         type != GgufType::array;
}

}  // namespace

Result<GgufMetadata> GgufMetadata::parse(ByteCursor& cursor, uint64_t count, std::string source) {
  GgufMetadata metadata;
  metadata.source_ = std::move(source);
  const std::string& file = metadata.source_;
  if (count > cursor.left() / kMinPairBytes) {
    return fail(fmt::format("{}: the header's metadata_kv_count says {} keys, more than {} bytes can hold", file, count,
                            cursor.left()));
  }
  metadata.entries_.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* place = cursor.here();
    const std::optional<std::string_view> key = cursor.string();
    if (!key) return fail(fmt::format("{}: metadata key {} of {} runs past the end of the file", file, i, count));
    if (key->empty()) return fail(fmt::format("{}: metadata key {} of {} is empty", file, i, count));
    if (key->size() > kMaxKeyBytes) {
      return fail(fmt::format("{}: metadata key {} has {} bytes; the format allows {}", file, quoted(*key), key->size(),
                              kMaxKeyBytes));
    }
    if (const std::optional<std::string> problem = check_value(cursor)) {
      return fail(fmt::format("{}: metadata key {}: {}", file, quoted(*key), *problem));
    }
    metadata.entries_.push_back({hash_of(*key), place});
  }
  std::vector<Entry>& entries = metadata.entries_;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : read_string(a.place) < read_string(b.place);
  });
  const auto twin = std::adjacent_find(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.hash == b.hash && read_string(a.place) == read_string(b.place);
  });
  if (twin != entries.end()) {
    return fail(fmt::format("{}: metadata key {} appears twice", file, quoted(read_string(twin->place))));
  }
  return metadata;
}

std::optional<GgufValue> GgufMetadata::find(std::string_view key) const {
  const uint64_t hash = hash_of(key);
  auto entry = std::lower_bound(entries_.begin(), entries_.end(), hash,
                                [](const Entry& a, uint64_t wanted) { return a.hash < wanted; });
  for (; entry != entries_.end() && entry->hash == hash; ++entry) {
    const std::string_view found = read_string(entry->place);
    if (found == key) return value_at(entry->place + sizeof(uint64_t) + found.size());
  }
  return std::nullopt;
}

tl::unexpected<Error> GgufMetadata::key_error(std::string_view key, std::string_view what) const {
  return fail(fmt::format("{}: metadata key {}: {}", source_, quoted(key), what));
}

Result<GgufValue> GgufMetadata::get(std::string_view key, GgufType type) const {
  const std::optional<GgufValue> value = find(key);
  if (!value) return key_error(key, fmt::format("is missing ({} expected)", gguf_type_name(type)));
  if (value->type != type) {
    return key_error(key, fmt::format("has type {}, expected {}", value->type_name(), gguf_type_name(type)));
  }
  return *value;
}

Result<GgufValue> GgufMetadata::get_array(std::string_view key, GgufType element) const {
  const std::optional<GgufValue> value = find(key);
  if (!value) return key_error(key, fmt::format("is missing (array of {} expected)", gguf_type_name(element)));
  if (value->type != GgufType::array || value->element != element) {
    return key_error(key,
                     fmt::format("has type {}, expected array of {}", value->type_name(), gguf_type_name(element)));
  }
  return *value;
}

Result<uint32_t> GgufMetadata::get_u32(std::string_view key) const {
  const std::optional<GgufValue> value = find(key);
  if (!value) return key_error(key, "is missing (uint32 expected)");
  if (!is_integer(value->type)) {
    return key_error(key, fmt::format("has type {}, expected uint32", value->type_name()));
  }
  const std::optional<uint32_t> number = integer_at(value->type, value->data);
  if (!number) return key_error(key, fmt::format("its {} value does not fit into uint32", value->type_name()));
  return *number;
}

Result<float> GgufMetadata::get_f32(std::string_view key) const {
  const Result<GgufValue> value = get(key, GgufType::f32);
  if (!value) return tl::unexpected(value.error());
  return read_number<float>(value->data);
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  const Result<GgufValue> value = get(key, GgufType::boolean);
  if (!value) return tl::unexpected(value.error());
  return read_number<uint8_t>(value->data) != 0;
}

Result<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  const Result<GgufValue> value = get(key, GgufType::string);
  if (!value) return tl::unexpected(value.error());
  return value->as_string();
}

Result<GgufStrings> GgufMetadata::get_strings(std::string_view key) const {
  const Result<GgufValue> value = get_array(key, GgufType::string);
  if (!value) return tl::unexpected(value.error());
  return GgufStrings(value->data, static_cast<size_t>(value->count));
}

Result<GgufNumbers<float>> GgufMetadata::get_f32s(std::string_view key) const {
  const Result<GgufValue> value = get_array(key, GgufType::f32);
  if (!value) return tl::unexpected(value.error());
  return GgufNumbers<float>(value->data, static_cast<size_t>(value->count));
}

Result<GgufNumbers<int32_t>> GgufMetadata::get_i32s(std::string_view key) const {
  const Result<GgufValue> value = get_array(key, GgufType::i32);
  if (!value) return tl::unexpected(value.error());
  return GgufNumbers<int32_t>(value->data, static_cast<size_t>(value->count));
}

Result<std::vector<uint32_t>> GgufMetadata::get_u32s(std::string_view key) const {
  const std::optional<GgufValue> value = find(key);
  if (!value) return key_error(key, "is missing (array of uint32 expected)");
  if (value->type != GgufType::array || !is_integer(value->element)) {
    return key_error(key, fmt::format("has type {}, expected array of uint32", value->type_name()));
  }
  std::vector<uint32_t> numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<uint32_t> number =
        integer_at(value->element, value->data + i * gguf_type_bytes(value->element));
    if (!number) return key_error(key, fmt::format("its element {} does not fit into uint32", i));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<uint32_t> GgufMetadata::u32_or(std::string_view key, uint32_t absent) const {
  return has(key) ? get_u32(key) : absent;
}

Result<float> GgufMetadata::f32_or(std::string_view key, float absent) const {
  return has(key) ? get_f32(key) : absent;
}

Result<bool> GgufMetadata::bool_or(std::string_view key, bool absent) const {
  return has(key) ? get_bool(key) : absent;
}

Result<std::string_view> GgufMetadata::string_or(std::string_view key, std::string_view absent) const {
  return has(key) ? get_string(key) : absent;
}

}  // namespace heddle::model
