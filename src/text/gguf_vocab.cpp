#include "text/gguf_vocab.h"

#include <optional>
#include <string_view>

namespace heddle::text {
namespace {

using model::GgufMetadata;

constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

struct IdKey {
  std::string_view key;
  std::optional<int64_t> VocabData::*field;
};
constexpr IdKey kIds[] = {
    {"tokenizer.ggml.bos_token_id", &VocabData::bos_id},     {"tokenizer.ggml.eos_token_id", &VocabData::eos_id},
    {"tokenizer.ggml.eot_token_id", &VocabData::eot_id},     {"tokenizer.ggml.eom_token_id", &VocabData::eom_id},
    {"tokenizer.ggml.unknown_token_id", &VocabData::unk_id}, {"tokenizer.ggml.padding_token_id", &VocabData::pad_id},
};

struct FlagKey {
  std::string_view key;
  std::optional<bool> VocabData::*field;
};
constexpr FlagKey kFlags[] = {
    {"tokenizer.ggml.add_bos_token", &VocabData::add_bos},
    {"tokenizer.ggml.add_eos_token", &VocabData::add_eos},
    {"tokenizer.ggml.add_space_prefix", &VocabData::add_space_prefix},
};

Result<void> read_ids_and_flags(const GgufMetadata& metadata, VocabData& data) {
  for (const IdKey& id : kIds) {
    if (!metadata.has(id.key)) continue;
    const Result<uint32_t> value = metadata.get_u32(id.key);
    if (!value) return tl::unexpected(value.error());
    data.*id.field = *value;
  }
  for (const FlagKey& flag : kFlags) {
    if (!metadata.has(flag.key)) continue;
    const Result<bool> value = metadata.get_bool(flag.key);
    if (!value) return tl::unexpected(value.error());
    data.*flag.field = *value;
  }
  return {};
}

Result<std::vector<std::string_view>> read_strings(const GgufMetadata& metadata, std::string_view key) {
  const Result<model::GgufStrings> strings = metadata.get_strings(key);
  if (!strings) return tl::unexpected(strings.error());
  std::vector<std::string_view> out;
  out.reserve(strings->size());
  for (const std::string_view text : *strings) out.push_back(text);
  return out;
}

template <class T>
void copy_numbers(const model::GgufNumbers<T>& from, std::vector<T>& to) {
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = from[i];
}

}  // namespace

Result<VocabData> read_vocab(const GgufMetadata& metadata) {
  VocabData data;
  const Result<std::string_view> kind = metadata.get_string("tokenizer.ggml.model");
  if (!kind) return tl::unexpected(kind.error());
  data.model = *kind;
  const Result<std::string_view> pre = metadata.string_or(kPre, "");
  if (!pre) return tl::unexpected(pre.error());
  data.pre = *pre;

  Result<std::vector<std::string_view>> tokens = read_strings(metadata, "tokenizer.ggml.tokens");
  if (!tokens) return tl::unexpected(tokens.error());
  data.tokens = std::move(*tokens);
  if (metadata.has(kMerges)) {
    Result<std::vector<std::string_view>> merges = read_strings(metadata, kMerges);
    if (!merges) return tl::unexpected(merges.error());
    data.merges = std::move(*merges);
  }
  if (metadata.has(kScores)) {
    const Result<model::GgufNumbers<float>> scores = metadata.get_f32s(kScores);
    if (!scores) return tl::unexpected(scores.error());
    copy_numbers(*scores, data.scores);
  }
  if (metadata.has(kTypes)) {
    const Result<model::GgufNumbers<int32_t>> types = metadata.get_i32s(kTypes);
    if (!types) return tl::unexpected(types.error());
    copy_numbers(*types, data.types);
  }
  if (Result<void> rest = read_ids_and_flags(metadata, data); !rest) return tl::unexpected(rest.error());
  return data;
}

}  // namespace heddle::text
