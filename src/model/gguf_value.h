#pragma once
// Metadata values of a GGUF file as they lie in the map: a value is a type and a place, read when asked for. Strings
// and arrays are views, so a vocabulary of 262,144 tokens costs no allocation. Views live as long as the file's bytes.
// What they cover was bounds-checked when the file was opened. Any thread.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

namespace heddle::model {

// The numbers are the file format's.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr uint32_t kGgufTypes = 13;

std::string_view gguf_type_name(GgufType type);  // as the GGUF specification writes it, in lower case: "uint32"
size_t gguf_type_bytes(GgufType type);           // of a scalar; 0 for string and array

struct GgufValue {
  GgufType type;
  GgufType element;       // of an array; else equal to `type`
  uint64_t count;         // elements of an array; else 1
  const std::byte* data;  // the value's first byte: a string's length, an array's first element

  std::string type_name() const;  // "uint32", "array of string"
  std::string_view as_string() const;
};

// Reads a possibly unaligned little-endian number.
template <class T>
T read_number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline std::string_view read_string(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + sizeof(uint64_t)), read_number<uint64_t>(at)};
}

// An array of numbers in place.
template <class T>
class GgufNumbers {
 public:
  GgufNumbers(const std::byte* data, size_t count) : data_(data), count_(count) {}
  size_t size() const { return count_; }
  T operator[](size_t i) const { return read_number<T>(data_ + i * sizeof(T)); }

 private:
  const std::byte* data_;
  size_t count_;
};

// An array of strings in place: walked in order, since each string's place depends on the lengths before it.
class GgufStrings {
 public:
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using reference = std::string_view;
    using pointer = void;

    iterator() = default;
    std::string_view operator*() const { return read_string(at_); }
    iterator& operator++() {
      at_ += sizeof(uint64_t) + read_number<uint64_t>(at_);
      ++index_;
      return *this;
    }
    iterator operator++(int) {
      iterator old = *this;
      ++*this;
      return old;
    }
    bool operator==(const iterator& other) const { return index_ == other.index_; }

   private:
    friend class GgufStrings;
    iterator(const std::byte* at, size_t index) : at_(at), index_(index) {}
    const std::byte* at_ = nullptr;
    size_t index_ = 0;
  };

  GgufStrings(const std::byte* data, size_t count) : data_(data), count_(count) {}
  size_t size() const { return count_; }
  iterator begin() const { return {data_, 0}; }
  iterator end() const { return {nullptr, count_}; }

 private:
  const std::byte* data_;
  size_t count_;
};

// Text of a file in an error message: in quotes, on one line, at most about 80 characters of it.
std::string quoted(std::string_view text);

}  // namespace heddle::model
