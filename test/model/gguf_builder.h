#pragma once
// Writes small GGUF files for tests, and remembers where each field went, so that a test can spoil just one of them.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/gguf_value.h"

namespace heddle::model {

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;  // used for the layout; written as a key only by number("general.alignment", ...)

  template <class T>
  GgufBuilder& number(std::string_view key, GgufType type, T value) {
    return pair(key, type, bytes_of(value));
  }
  GgufBuilder& u32(std::string_view key, uint32_t value) { return number(key, GgufType::u32, value); }
  GgufBuilder& f32(std::string_view key, float value) { return number(key, GgufType::f32, value); }
  GgufBuilder& boolean(std::string_view key, bool value) {
    return number(key, GgufType::boolean, static_cast<uint8_t>(value));
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return pair(key, GgufType::string, string_bytes(value));
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string payload = array_head(GgufType::string, values.size());
    for (const std::string& value : values) payload += string_bytes(value);
    return pair(key, GgufType::array, payload);
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, GgufType element, const std::vector<T>& values) {
    std::string payload = array_head(element, values.size());
    for (const T value : values) payload += bytes_of(value);
    return pair(key, GgufType::array, payload);
  }
  GgufBuilder& pair(std::string_view key, GgufType type, std::string payload) {
    pairs_.push_back({std::string(key), type, std::move(payload)});
    return *this;
  }
  GgufBuilder& without(std::string_view key) {
    std::erase_if(pairs_, [&](const Pair& pair) { return pair.key == key; });
    return *this;
  }
  // `data` is the tensor's bytes; dims innermost first.
  GgufBuilder& tensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> dims, std::string data) {
    tensors_.push_back({std::string(name), ggml_type, std::move(dims), std::move(data)});
    return *this;
  }
  GgufBuilder& f32_tensor(std::string_view name, std::vector<uint64_t> dims) {
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    std::string data;
    for (uint64_t i = 0; i < n; ++i) data += bytes_of(static_cast<float>(i));
    return tensor(name, 0, std::move(dims), std::move(data));
  }

  // The file; `at` knows its fields afterwards.
  std::string build() {
    places_.clear();
    std::string out;
    const auto mark = [&](const std::string& label) { places_[label] = out.size(); };
    mark("magic");
    out += "GGUF";
    mark("version");
    out += bytes_of(version);
    mark("tensor_count");
    out += bytes_of(static_cast<uint64_t>(tensors_.size()));
    mark("kv_count");
    out += bytes_of(static_cast<uint64_t>(pairs_.size()));
    for (const Pair& pair : pairs_) {
      mark(pair.key + ":key");
      out += string_bytes(pair.key);
      mark(pair.key + ":type");
      out += bytes_of(static_cast<uint32_t>(pair.type));
      mark(pair.key + ":value");
      out += pair.payload;
    }
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      mark(tensor.name + ":name");
      out += string_bytes(tensor.name);
      mark(tensor.name + ":n_dims");
      out += bytes_of(static_cast<uint32_t>(tensor.dims.size()));
      mark(tensor.name + ":dims");
      for (const uint64_t dim : tensor.dims) out += bytes_of(dim);
      mark(tensor.name + ":type");
      out += bytes_of(tensor.type);
      mark(tensor.name + ":offset");
      out += bytes_of(offset);
      offset += padded(tensor.data.size());
    }
    mark("infos_end");
    out.resize(padded(out.size()), '\0');
    for (const Tensor& tensor : tensors_) {
      mark(tensor.name + ":data");
      out += tensor.data;
      if (&tensor != &tensors_.back()) out.resize(padded(out.size()), '\0');
    }
    return out;
  }

  size_t at(const std::string& label) const {
    const auto found = places_.find(label);
    HEDDLE_CHECK(found != places_.end());
    return found->second;
  }

  template <class T>
  static std::string bytes_of(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string string_bytes(std::string_view text) {
    return bytes_of(static_cast<uint64_t>(text.size())) + std::string(text);
  }
  static std::string array_head(GgufType element, uint64_t count) {
    return bytes_of(static_cast<uint32_t>(element)) + bytes_of(count);
  }

 private:
  struct Pair {
    std::string key;
    GgufType type;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> dims;
    std::string data;
  };
  size_t padded(size_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::vector<Pair> pairs_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t> places_;
};

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// Overwrites a field.
template <class T>
void patch(std::string& file, size_t at, T value) {
  HEDDLE_CHECK(at + sizeof value <= file.size());
  std::memcpy(file.data() + at, &value, sizeof value);
}

}  // namespace heddle::model
