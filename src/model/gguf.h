#pragma once
// A GGUF weight file (versions 2 and 3, little-endian), memory-mapped: metadata, and where each tensor's data lies.
// Every count, length, offset and product is checked on opening, so what an opened file hands out is inside the map; a
// hostile or cut file is one line that names the field, key or tensor. Owner: the loader, for as long as views into it
// live. Any thread may read. Format: ggml's docs/gguf.md.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "device/quant.h"
#include "model/gguf_metadata.h"

namespace heddle::model {

inline constexpr uint32_t kMaxDims = 4;

// Kept small (48 bytes), since a hostile file can hold a tensor info in 33 and must not cost more than twice its size.
struct GgufTensor {
  std::string_view name;
  std::array<uint32_t, kMaxDims> dims{1, 1, 1, 1};  // innermost first: dims[0] is a row's length; unused ones are 1
  device::QuantType type = device::QuantType::f32;
  uint8_t n_dims = 0;
  const std::byte* place = nullptr;  // of the data

  uint32_t cols() const { return dims[0]; }
  uint32_t rows() const { return dims[1] * dims[2] * dims[3]; }  // fits: checked on opening
  std::span<const std::byte> data() const { return {place, rows() * device::row_bytes(type, cols())}; }
  std::string shape() const;  // "[576, 49152]", as in the file
  device::RawTensor raw() const { return {std::string(name), type, rows(), cols(), data()}; }
};

class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);
  // The same over bytes that the caller keeps alive; `name` stands for the path in errors.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& path() const { return metadata_.source(); }
  uint32_t version() const { return version_; }
  const GgufMetadata& metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }  // in the file's order
  const GgufTensor* find(std::string_view name) const;              // null when there is none
  std::span<const std::byte> bytes() const { return bytes_; }

  // Gives the resident pages under `data`, a part of this file, back to the kernel; reading them again is slow, not
  // wrong.
  void drop_pages(std::span<const std::byte> data) const;

 private:
  Result<void> read_header(ByteCursor& cursor, uint64_t& n_tensors, uint64_t& n_keys, const std::string& name);
  Result<void> read_tensors(ByteCursor& cursor, uint64_t n_tensors);
  Result<void> place_data(size_t infos_end, std::span<const uint64_t> offsets);

  std::optional<MappedFile> map_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace heddle::model
