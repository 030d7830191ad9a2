#include "model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "model/ggml_types.h"

namespace heddle::model {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kSwappedMagic = "FUGG";
constexpr std::string_view kLfsPointer = "version https://git-lfs";
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;  // the specification's unit
constexpr uint64_t kMaxNameBytes = 255;
constexpr uint64_t kMinInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name length and a byte, n_dims, one dim, type, offset

// What the first bytes of a file that is no GGUF file tell about it.
std::string wrong_magic(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64));
  if (head.starts_with(kLfsPointer)) return "is a Git LFS pointer, not the file itself (git lfs pull fetches it)";
  if (head.starts_with(kSwappedMagic)) return "is a big-endian GGUF file; only little-endian files are supported";
  return fmt::format("is not a GGUF file: its magic is {}, expected 'GGUF'", quoted(head.substr(0, 4)));
}

Result<uint32_t> read_alignment(const GgufMetadata& metadata) {
  constexpr std::string_view key = "general.alignment";
  const std::optional<GgufValue> value = metadata.find(key);
  if (!value) return kDefaultAlignment;
  if (value->type != GgufType::u32) {
    return metadata.key_error(key, fmt::format("has type {}, expected uint32", value->type_name()));
  }
  const auto alignment = read_number<uint32_t>(value->data);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment) {
    return metadata.key_error(key,
                              fmt::format("is {}, expected a power of two of at least {}", alignment, kMinAlignment));
  }
  return alignment;
}

// One tensor info at the cursor; `offset` is its data's place in the data section, which begins after the last info.
Result<void> read_info(ByteCursor& cursor, const std::string& file, uint64_t index, GgufTensor& tensor,
                       uint64_t& offset) {
  const auto cut = [&](std::string_view part) {
    return fail(fmt::format("{}: the file ends inside tensor info {} ({})", file, index, part));
  };
  const std::optional<std::string_view> name = cursor.string();
  if (!name) return cut("name");
  if (name->empty()) return fail(fmt::format("{}: tensor info {} has an empty name", file, index));
  const auto bad = [&](std::string_view what) {
    return fail(fmt::format("{}: tensor {}: {}", file, quoted(*name), what));
  };
  if (name->size() > kMaxNameBytes)
    return bad(fmt::format("its name has {} bytes, at most {}", name->size(), kMaxNameBytes));
  tensor.name = *name;

  const std::optional<uint32_t> n_dims = cursor.number<uint32_t>();
  if (!n_dims) return cut("n_dims");
  if (*n_dims < 1 || *n_dims > kMaxDims) return bad(fmt::format("n_dims is {}, expected 1 to {}", *n_dims, kMaxDims));
  tensor.n_dims = static_cast<uint8_t>(*n_dims);
  constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
  uint64_t rows = 1;
  for (uint32_t d = 0; d < *n_dims; ++d) {
    const std::optional<uint64_t> dim = cursor.number<uint64_t>();
    if (!dim) return cut("dimensions");
    if (*dim == 0) return bad(fmt::format("dimension {} is 0", d));
    if (*dim > kMax) return bad(fmt::format("dimension {} is {}, at most {} is supported", d, *dim, kMax));
    tensor.dims[d] = static_cast<uint32_t>(*dim);
    if (d > 0) rows *= *dim;  // both factors are below 2^32
    if (rows > kMax) return bad(fmt::format("the product of its dimensions 1 to {} is over {}", d, kMax));
  }

  const std::optional<uint32_t> type_number = cursor.number<uint32_t>();
  if (!type_number) return cut("type");
  const std::optional<device::QuantType> type = quant_type_of(*type_number);
  if (!type) {
    return bad(fmt::format("has type {}, which heddle does not support; supported: {}", ggml_type_name(*type_number),
                           supported_ggml_types()));
  }
  tensor.type = *type;
  const device::QuantLayout& layout = device::quant_layout(*type);
  if (tensor.cols() % layout.block_weights != 0) {
    return bad(fmt::format("dimension 0 is {}, not a multiple of {} as {} needs", tensor.cols(), layout.block_weights,
                           layout.name));
  }
  const uint64_t row = uint64_t{tensor.cols()} / layout.block_weights * layout.block_bytes;
  if (rows > std::numeric_limits<int64_t>::max() / row) return bad("its size in bytes does not fit into 63 bits");

  const std::optional<uint64_t> place = cursor.number<uint64_t>();
  if (!place) return cut("offset");
  offset = *place;
  return {};
}

}  // namespace

std::string GgufTensor::shape() const {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.begin() + n_dims, ", "));
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  Result<MappedFile> map = MappedFile::open(path);
  if (!map) return tl::unexpected(map.error());
  Result<GgufFile> file = parse(map->bytes(), path);
  if (file) file->map_.emplace(std::move(*map));
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.bytes_ = bytes;
  ByteCursor cursor(bytes);
  uint64_t n_tensors = 0, n_keys = 0;
  if (Result<void> read = file.read_header(cursor, n_tensors, n_keys, name); !read) return tl::unexpected(read.error());
  Result<GgufMetadata> metadata = GgufMetadata::parse(cursor, n_keys, std::move(name));
  if (!metadata) return tl::unexpected(metadata.error());
  file.metadata_ = std::move(*metadata);
  if (Result<void> read = file.read_tensors(cursor, n_tensors); !read) return tl::unexpected(read.error());
  return file;
}

Result<void> GgufFile::read_header(ByteCursor& cursor, uint64_t& n_tensors, uint64_t& n_keys, const std::string& name) {
  const std::string_view head(reinterpret_cast<const char*>(bytes_.data()), std::min(bytes_.size(), kMagic.size()));
  if (head != kMagic) return fail(fmt::format("{}: {}", name, wrong_magic(bytes_)));
  cursor.skip(kMagic.size());
  const std::optional<uint32_t> version = cursor.number<uint32_t>();
  if (!version) return fail(fmt::format("{}: the file ends inside the header (version)", name));
  if (*version != 0 && (*version & 0xffffu) == 0) {
    return fail(fmt::format("{}: is a big-endian GGUF file (version {:#x}); only little-endian files are supported",
                            name, *version));
  }
  if (*version != 2 && *version != 3) {
    return fail(fmt::format("{}: has GGUF version {}; versions 2 and 3 are supported", name, *version));
  }
  version_ = *version;
  const std::optional<uint64_t> tensors = cursor.number<uint64_t>();
  const std::optional<uint64_t> keys = cursor.number<uint64_t>();
  if (!tensors || !keys) {
    return fail(
        fmt::format("{}: the file ends inside the header ({})", name, tensors ? "metadata_kv_count" : "tensor_count"));
  }
  n_tensors = *tensors;
  n_keys = *keys;
  return {};
}

Result<void> GgufFile::read_tensors(ByteCursor& cursor, uint64_t n_tensors) {
  if (n_tensors > cursor.left() / kMinInfoBytes || n_tensors > std::numeric_limits<uint32_t>::max()) {
    return fail(fmt::format("{}: the header's tensor_count says {} tensors, more than {} bytes can hold", path(),
                            n_tensors, cursor.left()));
  }
  tensors_.resize(static_cast<size_t>(n_tensors));
  std::vector<uint64_t> offsets(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Result<void> read = read_info(cursor, path(), i, tensors_[i], offsets[i]);
    if (!read) return read;
  }

  if (Result<void> placed = place_data(cursor.offset(), offsets); !placed) return placed;
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const std::string_view name = tensors_[by_name_[i]].name;
    if (name == tensors_[by_name_[i - 1]].name) {
      return fail(fmt::format("{}: tensor {} appears twice", path(), quoted(name)));
    }
  }
  return {};
}

Result<void> GgufFile::place_data(size_t infos_end, std::span<const uint64_t> offsets) {
  const Result<uint32_t> alignment = read_alignment(metadata_);
  if (!alignment) return tl::unexpected(alignment.error());
  if (tensors_.empty()) return {};
  const size_t padding = (*alignment - infos_end % *alignment) % *alignment;
  const size_t avail = bytes_.size() - infos_end > padding ? bytes_.size() - infos_end - padding : 0;
  const std::byte* section = bytes_.data() + (bytes_.size() - avail);

  for (size_t i = 0; i < tensors_.size(); ++i) {
    GgufTensor& tensor = tensors_[i];
    const uint64_t offset = offsets[i];
    if (offset % *alignment != 0) {
      return fail(fmt::format("{}: tensor {}: offset {} is not a multiple of the alignment {}", path(),
                              quoted(tensor.name), offset, *alignment));
    }
    if (offset > avail || tensor.data().size() > avail - offset) {
      return fail(
          fmt::format("{}: tensor {}: its {} bytes at offset {} run past the end of the file (the data section has {})",
                      path(), quoted(tensor.name), tensor.data().size(), offset, avail));
    }
    tensor.place = section + offset;
  }

  by_name_.resize(tensors_.size());  // first by place, to see overlaps
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].place < tensors_[b].place; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const GgufTensor &before = tensors_[by_name_[i - 1]], &after = tensors_[by_name_[i]];
    if (before.place + before.data().size() > after.place) {
      return fail(fmt::format("{}: tensors {} and {} overlap (offsets {} and {})", path(), quoted(before.name),
                              quoted(after.name), offsets[by_name_[i - 1]], offsets[by_name_[i]]));
    }
  }
  return {};
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

void GgufFile::drop_pages(std::span<const std::byte> data) const {
  if (map_) map_->drop(static_cast<size_t>(data.data() - bytes_.data()), data.size());
}

}  // namespace heddle::model
