#pragma once
// Walks bytes that nobody vouches for. Every step is bounds-checked in the form `size <= avail`, never by adding to an
// offset first. A failed step leaves the cursor where it was. Internal to the room; any thread.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace heddle::model {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t left() const { return bytes_.size() - offset_; }
  const std::byte* here() const { return bytes_.data() + offset_; }

  bool skip(uint64_t size) {
    if (size > left()) return false;
    offset_ += static_cast<size_t>(size);
    return true;
  }

  template <class T>
  std::optional<T> number() {
    if (sizeof(T) > left()) return std::nullopt;
    T value;
    std::memcpy(&value, here(), sizeof value);
    offset_ += sizeof value;
    return value;
  }

  // A length of 64 bits, then so many bytes.
  std::optional<std::string_view> string() {
    const size_t start = offset_;
    const std::optional<uint64_t> length = number<uint64_t>();
    if (!length || *length > left()) {
      offset_ = start;
      return std::nullopt;
    }
    const std::string_view text(reinterpret_cast<const char*>(here()), static_cast<size_t>(*length));
    offset_ += text.size();
    return text;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

}  // namespace heddle::model
