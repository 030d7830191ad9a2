#include "model/gguf_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

namespace heddle::model {
namespace {

constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr uint32_t kMaxParts = 99999;  // five digits in the name

struct PartName {
  std::string stem;  // what stands before -00001-of-0000N.gguf
  uint32_t number = 0;
  uint32_t count = 0;

  std::string path(uint32_t which) const { return fmt::format("{}-{:05}-of-{:05}.gguf", stem, which, count); }
};

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 5, number);
  if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  return number;
}

std::optional<PartName> part_name(std::string_view path) {
  constexpr std::string_view shape = "-00001-of-00001.gguf";
  if (path.size() <= shape.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - shape.size());
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  const std::optional<uint32_t> number = five_digits(tail.substr(1)), count = five_digits(tail.substr(10));
  if (!number || !count) return std::nullopt;
  return PartName{std::string(path.substr(0, path.size() - shape.size())), *number, *count};
}

}  // namespace

Result<GgufSet> GgufSet::open(const std::string& path) {
  Result<GgufFile> named = GgufFile::open(path);
  if (!named) return tl::unexpected(named.error());
  const GgufMetadata& metadata = named->metadata();
  const Result<uint32_t> count = metadata.u32_or(kSplitCount, 1);
  if (!count) return tl::unexpected(count.error());
  const std::optional<PartName> name = part_name(path);
  if (*count <= 1) {
    if (name && name->count > 1) {
      return metadata.key_error(kSplitCount,
                                fmt::format("says that this file is a whole model, but it is named as part {} of {}",
                                            name->number, name->count));
    }
    std::vector<GgufFile> whole;
    whole.push_back(std::move(*named));
    return join(std::move(whole));
  }
  if (*count > kMaxParts) return metadata.key_error(kSplitCount, fmt::format("is {}, at most {}", *count, kMaxParts));
  if (!name || name->count != *count || name->number < 1 || name->number > name->count) {
    return metadata.key_error(
        kSplitCount, fmt::format("is {}: the file must be named like NAME-00001-of-{:05}.gguf to find the other parts",
                                 *count, *count));
  }
  std::vector<GgufFile> parts;
  for (uint32_t number = 1; number <= *count; ++number) {
    if (number == name->number) {
      parts.push_back(std::move(*named));
      continue;
    }
    Result<GgufFile> part = GgufFile::open(name->path(number));
    if (!part) {
      return fail(fmt::format("{} (part {} of {} of a split model)", part.error().message, number, *count));
    }
    parts.push_back(std::move(*part));
  }
  return join(std::move(parts));
}

Result<GgufSet> GgufSet::join(std::vector<GgufFile> parts) {
  GgufSet set(std::move(parts));
  const auto n_parts = static_cast<uint32_t>(set.parts_.size());
  if (n_parts == 1) {
    const Result<uint32_t> count = set.metadata().u32_or(kSplitCount, 1);
    if (!count) return tl::unexpected(count.error());
    if (*count > 1)
      return set.metadata().key_error(kSplitCount, fmt::format("is {}, but this is the only part", *count));
    return set;
  }
  for (uint32_t i = 0; i < n_parts; ++i) {
    const GgufMetadata& metadata = set.parts_[i].metadata();
    const Result<uint32_t> count = metadata.get_u32(kSplitCount);
    if (!count) return tl::unexpected(count.error());
    if (*count != n_parts) return metadata.key_error(kSplitCount, fmt::format("is {}, expected {}", *count, n_parts));
    const Result<uint32_t> number = metadata.get_u32(kSplitNo);
    if (!number) return tl::unexpected(number.error());
    if (*number != i) return metadata.key_error(kSplitNo, fmt::format("is {}, expected {}", *number, i));
  }
  const Result<uint32_t> n_tensors = set.metadata().get_u32(kSplitTensors);
  if (!n_tensors) return tl::unexpected(n_tensors.error());
  if (*n_tensors != set.n_tensors()) {
    return set.metadata().key_error(
        kSplitTensors, fmt::format("is {}, but the {} parts hold {} tensors", *n_tensors, n_parts, set.n_tensors()));
  }
  for (size_t i = 1; i < set.parts_.size(); ++i) {
    for (const GgufTensor& tensor : set.parts_[i].tensors()) {
      for (size_t j = 0; j < i; ++j) {
        if (set.parts_[j].find(tensor.name) == nullptr) continue;
        return fail(fmt::format("{}: tensor {} appears in {} too", set.parts_[i].path(), quoted(tensor.name),
                                set.parts_[j].path()));
      }
    }
  }
  return set;
}

size_t GgufSet::n_tensors() const {
  size_t n = 0;
  for (const GgufFile& part : parts_) n += part.tensors().size();
  return n;
}

uint64_t GgufSet::tensor_bytes() const {
  uint64_t bytes = 0;
  each_tensor([&](const GgufTensor& tensor) { bytes += tensor.data().size(); });
  return bytes;
}

const GgufTensor* GgufSet::find(std::string_view name) const {
  for (const GgufFile& part : parts_) {
    if (const GgufTensor* tensor = part.find(name)) return tensor;
  }
  return nullptr;
}

void GgufSet::drop_pages(const GgufTensor& tensor) const {
  for (const GgufFile& part : parts_) {
    const std::span<const std::byte> bytes = part.bytes();
    const std::less_equal<const std::byte*> ordered;
    if (ordered(bytes.data(), tensor.place) && ordered(tensor.place, bytes.data() + bytes.size() - 1)) {
      return part.drop_pages(tensor.data());
    }
  }
}

}  // namespace heddle::model
