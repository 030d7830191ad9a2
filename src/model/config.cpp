#include "model/config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>

#include "device/dequantize.h"

namespace heddle::model {
namespace {

constexpr std::array<std::string_view, 4> kFamilies = {"llama", "qwen2", "qwen3", "gemma3"};  // in the enum's order
constexpr uint32_t kMaxWidth = 1u << 24;  // of any row: keeps sums and products of widths inside 32 bits

// A key that, with any value but these, means something that heddle does not compute. Absent is neutral too.
struct Feature {
  std::string_view key;
  std::string_view means;
  float neutral = 0.0f;
  float also_neutral = 0.0f;
};
constexpr Feature kFeatures[] = {
    {"expert_count", "mixture of experts"},
    {"expert_used_count", "mixture of experts"},
    {"nextn_predict_layers", "multi-token prediction layers"},
    {"attn_logit_softcapping", "soft-capping of attention scores"},
    {"final_logit_softcapping", "soft-capping of logits"},
    {"logit_scale", "scaling of logits", 0.0f, 1.0f},
    {"residual_scale", "scaling of residuals", 0.0f, 1.0f},
    {"embedding_scale", "scaling of embeddings by a key", 0.0f, 1.0f},
    {"use_parallel_residual", "a parallel residual"},
    {"pooling_type", "pooling (an embedding model)"},
    {"embedding_length_per_layer_input", "per-layer input embeddings"},
    {"attention.max_alibi_bias", "ALiBi"},
    {"attention.clamp_kqv", "clamping of q, k and v"},
    {"attention.causal", "attention that is not causal", 1.0f, 1.0f},
    {"attention.scale", "an attention scale given by a key"},
    {"attention.temperature_scale", "attention temperature scaling", 0.0f, 1.0f},
    {"attention.shared_kv_layers", "layers that share their KV cache"},
    {"attention.q_lora_rank", "low-rank q projections"},
    {"attention.kv_lora_rank", "low-rank kv projections (MLA)"},
    {"rope.scaling.attn_factor", "scaling of attention with the context (YaRN)", 0.0f, 1.0f},
    {"rope.scaling.yarn_log_multiplier", "YaRN rope scaling"},
    {"rope.scaling.alpha", "NTK rope scaling", 0.0f, 1.0f},
};

// Reads keys under the architecture's prefix and keeps the first error: after a failed step the rest run on zeros, and
// whoever divides looks at `failed` first.
class ConfigReader {
 public:
  ConfigReader(const GgufSet& files, std::string_view architecture)
      : files_(files), metadata_(files.metadata()), prefix_(architecture) {}

  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  std::string key(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }
  bool has(std::string_view suffix) const { return metadata_.has(key(suffix)); }

  void refuse(std::string_view suffix, std::string_view what) {
    if (!error_) error_ = metadata_.key_error(key(suffix), what).value();
  }
  void refuse_file(std::string_view what) {
    if (!error_) error_ = Error{fmt::format("{}: {}", files_.path(), what)};
  }

  uint32_t width(std::string_view suffix) { return checked_width(suffix, take(metadata_.get_u32(key(suffix)))); }
  uint32_t width_or(std::string_view suffix, uint32_t absent) { return has(suffix) ? width(suffix) : absent; }
  uint32_t u32_or(std::string_view suffix, uint32_t absent) { return take(metadata_.u32_or(key(suffix), absent)); }
  float positive(std::string_view suffix) { return checked_positive(suffix, take(metadata_.get_f32(key(suffix)))); }
  float positive_or(std::string_view suffix, float absent) { return has(suffix) ? positive(suffix) : absent; }
  std::string_view string_or(std::string_view suffix, std::string_view absent) {
    return take(metadata_.string_or(key(suffix), absent));
  }

  void check_feature(const Feature& feature) {
    const std::optional<GgufValue> value = metadata_.find(key(feature.key));
    if (!value) return;
    const std::optional<float> number = as_float(*value);
    if (!number) return refuse(feature.key, fmt::format("has type {}, expected a number", value->type_name()));
    if (*number == feature.neutral || *number == feature.also_neutral) return;
    refuse(feature.key, fmt::format("is {}: heddle does not support {}", *number, feature.means));
  }

 private:
  template <class T>
  T take(const Result<T>& result) {
    if (result) return *result;
    if (!error_) error_ = result.error();
    return T{};
  }
  uint32_t checked_width(std::string_view suffix, uint32_t value) {
    if (!failed() && (value == 0 || value > kMaxWidth)) {
      refuse(suffix, fmt::format("is {}, expected 1 to {}", value, kMaxWidth));
    }
    return value;
  }
  float checked_positive(std::string_view suffix, float value) {
    if (!failed() && !(std::isfinite(value) && value > 0.0f)) {
      refuse(suffix, fmt::format("is {}, expected a positive number", value));
    }
    return value;
  }
  std::optional<float> as_float(const GgufValue& value) const {
    switch (value.type) {
      case GgufType::f32:
        return read_number<float>(value.data);
      case GgufType::f64:
        return static_cast<float>(read_number<double>(value.data));
      case GgufType::u8:
      case GgufType::boolean:
        return static_cast<float>(read_number<uint8_t>(value.data));
      case GgufType::i8:
        return static_cast<float>(read_number<int8_t>(value.data));
      case GgufType::u16:
        return static_cast<float>(read_number<uint16_t>(value.data));
      case GgufType::i16:
        return static_cast<float>(read_number<int16_t>(value.data));
      case GgufType::u32:
        return static_cast<float>(read_number<uint32_t>(value.data));
      case GgufType::i32:
        return static_cast<float>(read_number<int32_t>(value.data));
      case GgufType::u64:
        return static_cast<float>(read_number<uint64_t>(value.data));
      case GgufType::i64:
        return static_cast<float>(read_number<int64_t>(value.data));
      case GgufType::string:
      case GgufType::array:
        return std::nullopt;
    }
    return std::nullopt;
  }

  const GgufSet& files_;
  const GgufMetadata& metadata_;
  std::string prefix_;
  std::optional<Error> error_;
};

Result<Family> read_family(const GgufMetadata& metadata) {
  const Result<std::string_view> type = metadata.string_or("general.type", "model");
  if (!type) return tl::unexpected(type.error());
  if (*type != "model") {
    return metadata.key_error("general.type", fmt::format("is {}, expected 'model'", quoted(*type)));
  }
  const Result<std::string_view> architecture = metadata.get_string("general.architecture");
  if (!architecture) return tl::unexpected(architecture.error());
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (kFamilies[i] == *architecture) return static_cast<Family>(i);
  }
  return metadata.key_error("general.architecture", fmt::format("is {}, which heddle does not support; supported: {}",
                                                                quoted(*architecture), fmt::join(kFamilies, ", ")));
}

void read_sizes(ConfigReader& reader, const GgufSet& files, ModelConfig& config) {
  config.n_layers = reader.width("block_count");
  config.hidden = reader.width("embedding_length");
  config.ffn = reader.width("feed_forward_length");
  config.context_length = reader.width("context_length");
  if (reader.failed()) return;
  // A count that lies would make the loader declare that many layers.
  const std::string last = fmt::format("blk.{}.attn_norm.weight", config.n_layers - 1);
  if (files.find(last) == nullptr) {
    return reader.refuse("block_count", fmt::format("is {}, but there is no tensor {}", config.n_layers, last));
  }

  const GgufTensor* embedding = files.find("token_embd.weight");
  if (embedding == nullptr) return reader.refuse_file("tensor 'token_embd.weight' is missing");
  if (embedding->cols() != config.hidden || embedding->n_dims != 2) {
    return reader.refuse("embedding_length", fmt::format("is {}, but tensor 'token_embd.weight' has shape {}",
                                                         config.hidden, embedding->shape()));
  }
  config.vocab_size = embedding->rows();
  if (config.vocab_size > kMaxWidth) {
    return reader.refuse_file(
        fmt::format("tensor 'token_embd.weight' has {} rows, at most {} are supported", config.vocab_size, kMaxWidth));
  }
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (const std::optional<GgufValue> tokens = files.metadata().find(kTokens)) {
    if (tokens->type == GgufType::array && tokens->count != config.vocab_size) {
      return reader.refuse_file(
          fmt::format("metadata key '{}' has {} tokens, but tensor 'token_embd.weight' has {} rows", kTokens,
                      tokens->count, config.vocab_size));
    }
  }
  config.tied_head = files.find("output.weight") == nullptr;
}

void read_attention(ConfigReader& reader, ModelConfig& config) {
  config.n_heads = reader.width("attention.head_count");
  config.n_kv_heads = reader.width_or("attention.head_count_kv", config.n_heads);
  if (reader.failed()) return;
  if (config.n_heads % config.n_kv_heads != 0) {
    return reader.refuse("attention.head_count_kv", fmt::format("is {}, which does not divide attention.head_count {}",
                                                                config.n_kv_heads, config.n_heads));
  }
  if (!reader.has("attention.key_length") && config.hidden % config.n_heads != 0) {
    return reader.refuse("attention.head_count", fmt::format("is {}, which does not divide embedding_length {}",
                                                             config.n_heads, config.hidden));
  }
  config.head_dim = reader.width_or("attention.key_length", config.hidden / config.n_heads);
  const std::string_view source = reader.has("attention.key_length") ? "attention.key_length" : "attention.head_count";
  if (reader.failed()) return;
  if (config.head_dim % 2 != 0) {
    return reader.refuse(
        source, fmt::format("gives {} dimensions a head, which rotary embedding needs to be even", config.head_dim));
  }
  if (uint64_t{config.n_heads} * config.head_dim > kMaxWidth) {
    return reader.refuse(source, fmt::format("gives {} heads of {} dimensions, {} together at most", config.n_heads,
                                             config.head_dim, kMaxWidth));
  }
  for (const std::string_view same :
       {"attention.value_length", "attention.key_length_swa", "attention.value_length_swa"}) {
    const uint32_t length = reader.u32_or(same, config.head_dim);
    if (length != config.head_dim) {
      reader.refuse(same, fmt::format("is {}: heddle does not support lengths other than the heads' {}", length,
                                      config.head_dim));
    }
  }
  for (const std::string_view same : {"rope.dimension_count", "rope.dimension_count_swa"}) {
    const uint32_t rotated = reader.u32_or(same, config.head_dim);
    if (rotated != config.head_dim) {
      reader.refuse(same, fmt::format("is {}: heddle does not support rotating a part of the {} dimensions of a head",
                                      rotated, config.head_dim));
    }
  }
  config.norm_epsilon = reader.positive("attention.layer_norm_rms_epsilon");
}

void read_rope(ConfigReader& reader, const GgufSet& files, ModelConfig& config) {
  // The format's default; gemma3 models differ from it, so there the key must be present.
  config.rope_global.base = config.family == Family::gemma3 ? reader.positive("rope.freq_base")
                                                            : reader.positive_or("rope.freq_base", 10000.0f);
  if (reader.has("rope.dimension_sections")) {
    reader.refuse("rope.dimension_sections", "heddle does not support rotary embedding over several axes");
  }
  // Files without a type have always meant linear scaling by the factor.
  const std::string_view type = reader.string_or("rope.scaling.type", "linear");
  if (type == "linear") {
    const std::string_view factor = reader.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    config.rope_global.position_scale = 1.0f / reader.positive_or(factor, 1.0f);
  } else if (type != "none") {
    reader.refuse("rope.scaling.type",
                  fmt::format("is {}, which heddle does not support; supported: none, linear", quoted(type)));
  }
  for (const std::string_view name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (files.find(name) != nullptr)
      reader.refuse_file(fmt::format("tensor '{}': heddle does not support LongRoPE", name));
  }
  const GgufTensor* factors = files.find("rope_freqs.weight");
  if (factors == nullptr || reader.failed()) return;
  if (factors->cols() != config.head_dim / 2 || factors->rows() != 1 || factors->type != device::QuantType::f32) {
    return reader.refuse_file(fmt::format("tensor 'rope_freqs.weight' is {} of shape {}, expected F32 of shape [{}]",
                                          device::quant_name(factors->type), factors->shape(), config.head_dim / 2));
  }
  config.rope_global.factors.resize(factors->cols());
  device::dequantize_row(factors->type, factors->place, factors->cols(), config.rope_global.factors.data());
  for (size_t i = 0; i < config.rope_global.factors.size(); ++i) {
    const float factor = config.rope_global.factors[i];
    if (!(std::isfinite(factor) && factor > 0.0f)) {
      return reader.refuse_file(
          fmt::format("tensor 'rope_freqs.weight': element {} is {}, expected a positive number", i, factor));
    }
  }
}

// Which layers see a window only: gemma3 files name no pattern, or the period, or each layer.
void read_windows(ConfigReader& reader, const GgufMetadata& metadata, ModelConfig& config) {
  constexpr std::string_view kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern";
  config.local.assign(config.n_layers, false);
  config.rope_local = {};
  const uint32_t window = reader.u32_or(kWindow, 0);
  if (window == 0 || reader.failed()) return;
  if (config.family != Family::gemma3) {
    if (window < config.context_length) {
      reader.refuse(kWindow, fmt::format("is {}: heddle does not support sliding windows for {} models", window,
                                         family_name(config.family)));
    }
    return;
  }
  config.window = window;
  config.rope_local.base = reader.positive_or("rope.freq_base_swa", 10000.0f);
  const std::optional<GgufValue> pattern = metadata.find(reader.key(kPattern));
  if (pattern && pattern->type == GgufType::array) {
    if (pattern->element != GgufType::boolean || pattern->count < config.n_layers) {
      return reader.refuse(kPattern, fmt::format("is {} {} elements, expected array of bool, one for each of {} layers",
                                                 pattern->type_name(), pattern->count, config.n_layers));
    }
    for (uint32_t i = 0; i < config.n_layers; ++i) config.local[i] = read_number<uint8_t>(pattern->data + i) != 0;
    return;
  }
  const uint32_t period = reader.u32_or(kPattern, 6);  // five local layers, then a global one
  if (period == 0) return reader.refuse(kPattern, "is 0, expected at least 1");
  for (uint32_t i = 0; i < config.n_layers; ++i) config.local[i] = i % period != period - 1;
}

void set_family(ModelConfig& config) {
  const auto scale_of = [](uint32_t dim) { return 1.0f / std::sqrt(static_cast<float>(dim)); };
  config.attention_scale = scale_of(config.head_dim);
  switch (config.family) {
    case Family::llama:
      config.rope_interleaved = true;
      break;
    case Family::qwen2:
      config.qkv_bias = true;
      break;
    case Family::qwen3:
      config.qk_norm = true;
      break;
    case Family::gemma3:
      config.qk_norm = true;
      config.post_norms = true;
      config.activation = device::Activation::gelu_tanh;
      config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
      // The 27B model, known by its 62 layers, scales by its width a head (168), not by the length of its heads (128):
      // query_pre_attn_scalar of its configuration, which no GGUF key carries.
      if (config.n_layers == 62) config.attention_scale = scale_of(config.hidden / config.n_heads);
      break;
  }
}

}  // namespace

std::string_view family_name(Family family) { return kFamilies[static_cast<size_t>(family)]; }

Result<ModelConfig> read_config(const GgufSet& files) {
  const GgufMetadata& metadata = files.metadata();
  const Result<Family> family = read_family(metadata);
  if (!family) return tl::unexpected(family.error());
  const Result<std::string_view> name = metadata.string_or("general.name", "");
  if (!name) return tl::unexpected(name.error());

  ModelConfig config;
  config.family = *family;
  config.name = *name;
  ConfigReader reader(files, family_name(*family));
  for (const Feature& feature : kFeatures) reader.check_feature(feature);
  if (!reader.failed()) read_sizes(reader, files, config);
  if (!reader.failed()) read_attention(reader, config);
  if (!reader.failed()) read_rope(reader, files, config);
  if (!reader.failed()) read_windows(reader, metadata, config);
  if (reader.failed()) return tl::unexpected(reader.error());
  set_family(config);
  return config;
}

}  // namespace heddle::model
