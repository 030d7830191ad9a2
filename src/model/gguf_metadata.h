#pragma once
// The key-value part of a GGUF file: typed getters over values in place. Owned by its GgufFile, whose bytes it points
// into. Any thread may read. A getter fails with one line that names the file, the key, the type found and the type
// wanted.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/byte_cursor.h"
#include "model/gguf_value.h"

namespace heddle::model {

class GgufMetadata {
 public:
  // Reads `count` pairs at the cursor, checks all of them, leaves the cursor behind the last. `source` names the file.
  static Result<GgufMetadata> parse(ByteCursor& cursor, uint64_t count, std::string source);

  size_t size() const { return entries_.size(); }
  const std::string& source() const { return source_; }
  std::optional<GgufValue> find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key).has_value(); }

  // Any integer type whose value fits is taken.
  Result<uint32_t> get_u32(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<GgufStrings> get_strings(std::string_view key) const;
  Result<GgufNumbers<float>> get_f32s(std::string_view key) const;
  Result<GgufNumbers<int32_t>> get_i32s(std::string_view key) const;   // array of int32
  Result<std::vector<uint32_t>> get_u32s(std::string_view key) const;  // array of any integer type, values that fit

  // The same for keys that may be absent; a present key of a wrong type is an error still.
  Result<uint32_t> u32_or(std::string_view key, uint32_t absent) const;
  Result<float> f32_or(std::string_view key, float absent) const;
  Result<bool> bool_or(std::string_view key, bool absent) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view absent) const;

  tl::unexpected<Error> key_error(std::string_view key, std::string_view what) const;  // "file: key: what"

 private:
  // Two words a pair, since a hostile file can hold a pair in 14 bytes and must not cost more than twice its size.
  struct Entry {
    uint64_t hash;           // of the key; entries are sorted by it
    const std::byte* place;  // of the key's length
  };

  Result<GgufValue> get(std::string_view key, GgufType type) const;
  Result<GgufValue> get_array(std::string_view key, GgufType element) const;

  std::string source_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::model
