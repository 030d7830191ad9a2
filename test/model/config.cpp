#include "model/config.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "model/gguf_builder.h"

namespace heddle::model {
namespace {

// A file with the keys and tensors that a configuration is read from: 2 layers, 4 heads of 16, 2 of them for k and v.
GgufBuilder sample(const std::string& architecture) {
  GgufBuilder builder;
  const auto key = [&](const char* suffix) { return architecture + "." + suffix; };
  builder.string("general.architecture", architecture)
      .string("general.name", "Sample")
      .u32(key("block_count"), 2)
      .u32(key("embedding_length"), 64)
      .u32(key("feed_forward_length"), 96)
      .u32(key("context_length"), 2048)
      .u32(key("attention.head_count"), 4)
      .u32(key("attention.head_count_kv"), 2)
      .f32(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .f32(key("rope.freq_base"), 500000.0f);
  builder.f32_tensor("token_embd.weight", {64, 10}).f32_tensor("blk.1.attn_norm.weight", {64});
  return builder;
}

Result<ModelConfig> config_of(GgufBuilder builder) {
  const std::string bytes = builder.build();
  std::vector<GgufFile> parts;
  parts.push_back(GgufFile::parse(as_bytes(bytes), "x.gguf").value());
  return read_config(GgufSet::join(std::move(parts)).value());
}

std::string error_of(GgufBuilder builder) {
  const Result<ModelConfig> config = config_of(std::move(builder));
  return config ? "" : config.error().message;
}

ModelConfig valid(GgufBuilder builder) {
  Result<ModelConfig> config = config_of(std::move(builder));
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  return std::move(*config);
}

TEST_CASE("a llama file gives its sizes, defaults for what it leaves out, and the llama family's traits") {
  const ModelConfig c = valid(sample("llama"));
  CHECK(c.family == Family::llama);
  CHECK(c.name == "Sample");
  CHECK(c.n_layers == 2);
  CHECK(c.hidden == 64);
  CHECK(c.ffn == 96);
  CHECK(c.context_length == 2048);
  CHECK(c.vocab_size == 10);
  CHECK(c.n_heads == 4);
  CHECK(c.n_kv_heads == 2);
  CHECK(c.head_dim == 16);
  CHECK(c.q_size() == 64);
  CHECK(c.kv_size() == 32);
  CHECK(c.norm_epsilon == 1e-5f);
  CHECK(c.attention_scale == 0.25f);
  CHECK(c.embedding_scale == 1.0f);
  CHECK(c.activation == device::Activation::silu);
  CHECK(c.rope_global.base == 500000.0f);
  CHECK(c.rope_global.position_scale == 1.0f);
  CHECK(c.rope_global.factors.empty());
  CHECK(c.rope_interleaved);
  CHECK(c.tied_head);
  CHECK(!c.qkv_bias);
  CHECK(!c.qk_norm);
  CHECK(!c.post_norms);
  CHECK(c.window_of(0) == 0);
  CHECK(&c.rope_of(1) == &c.rope_global);

  const ModelConfig bare =
      valid(sample("llama").without("llama.attention.head_count_kv").without("llama.rope.freq_base"));
  CHECK(bare.n_kv_heads == 4);
  CHECK(bare.rope_global.base == 10000.0f);
}

TEST_CASE("qwen2 has biases on q, k and v, qwen3 norms on q and k; both rotate halves") {
  const ModelConfig two = valid(sample("qwen2"));
  CHECK(two.family == Family::qwen2);
  CHECK(two.qkv_bias);
  CHECK(!two.qk_norm);
  CHECK(!two.rope_interleaved);
  const ModelConfig three =
      valid(sample("qwen3").u32("qwen3.attention.key_length", 128).u32("qwen3.attention.value_length", 128));
  CHECK(three.family == Family::qwen3);
  CHECK(three.qk_norm);
  CHECK(!three.qkv_bias);
  CHECK(!three.rope_interleaved);
  CHECK(three.head_dim == 128);
  CHECK(three.q_size() == 512);
}

TEST_CASE("an output tensor unties the head") {
  CHECK(!valid(sample("llama").f32_tensor("output.weight", {64, 10})).tied_head);
}

TEST_CASE("Llama 3 scaling comes as one divisor a frequency, linear scaling as a factor of the positions") {
  const ModelConfig c = valid(sample("llama").tensor("rope_freqs.weight", 0, {8}, [] {
    std::string data;
    for (int i = 0; i < 8; ++i) data += GgufBuilder::bytes_of(1.0f + static_cast<float>(i));
    return data;
  }()));
  CHECK(c.rope_global.factors == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(valid(sample("llama").string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0f))
            .rope_global.position_scale == 0.25f);
  CHECK(valid(sample("llama").f32("llama.rope.scale_linear", 2.0f)).rope_global.position_scale == 0.5f);
  CHECK(valid(sample("llama").string("llama.rope.scaling.type", "none")).rope_global.position_scale == 1.0f);
}

GgufBuilder gemma(uint32_t n_layers) {
  GgufBuilder builder = sample("gemma3");
  builder.without("gemma3.block_count").u32("gemma3.block_count", n_layers);
  builder.u32("gemma3.attention.sliding_window", 512);
  if (n_layers != 2) builder.f32_tensor("blk." + std::to_string(n_layers - 1) + ".attn_norm.weight", {64});
  return builder;
}

TEST_CASE("gemma3 alternates five local layers and a global one, each kind with its rotary base") {
  const ModelConfig c = valid(gemma(18).f32("gemma3.rope.scaling.factor", 8.0f));
  CHECK(c.family == Family::gemma3);
  CHECK(c.qk_norm);
  CHECK(c.post_norms);
  CHECK(c.activation == device::Activation::gelu_tanh);
  CHECK(c.embedding_scale == 8.0f);
  for (uint32_t layer = 0; layer < 18; ++layer) {
    const bool global = layer == 5 || layer == 11 || layer == 17;
    CHECK(c.window_of(layer) == (global ? 0 : 512));
    CHECK(c.rope_of(layer).base == (global ? 500000.0f : 10000.0f));
    CHECK(c.rope_of(layer).position_scale == (global ? 0.125f : 1.0f));
  }
}

TEST_CASE("gemma3 may name the local base, the period, or each layer; without a window all layers are global") {
  CHECK(valid(gemma(6).f32("gemma3.rope.freq_base_swa", 20000.0f)).rope_of(0).base == 20000.0f);
  CHECK(valid(gemma(6).u32("gemma3.attention.sliding_window_pattern", 2)).local ==
        std::vector<bool>{true, false, true, false, true, false});
  CHECK(
      valid(gemma(3).numbers<uint8_t>("gemma3.attention.sliding_window_pattern", GgufType::boolean, {0, 1, 1})).local ==
      std::vector<bool>{false, true, true});
  const ModelConfig all = valid(gemma(6).without("gemma3.attention.sliding_window"));
  CHECK(all.local == std::vector<bool>(6, false));
  CHECK(all.window_of(0) == 0);
}

TEST_CASE("gemma3 scales attention by the head's length, the 27B model by its width a head") {
  CHECK(valid(gemma(18).u32("gemma3.attention.key_length", 256)).attention_scale == 1.0f / 16.0f);
  CHECK(valid(gemma(62).u32("gemma3.attention.key_length", 256)).attention_scale == 1.0f / std::sqrt(16.0f));
}

TEST_CASE("what heddle cannot compute is refused by name, with the key") {
  struct Row {
    std::function<GgufBuilder()> file;
    std::string message;
  };
  const auto llama = [](auto change) {
    return [=] {
      GgufBuilder builder = sample("llama");
      change(builder);
      return builder;
    };
  };
  const Row rows[] = {
      {[] { return sample("phi3"); },
       "x.gguf: metadata key 'general.architecture': is 'phi3', which heddle does not support; supported: llama, "
       "qwen2, "
       "qwen3, gemma3"},
      {llama([](GgufBuilder& b) { b.without("general.architecture"); }),
       "x.gguf: metadata key 'general.architecture': is missing (string expected)"},
      {llama([](GgufBuilder& b) { b.string("general.type", "adapter"); }),
       "x.gguf: metadata key 'general.type': is 'adapter', expected 'model'"},
      {llama([](GgufBuilder& b) { b.u32("llama.expert_count", 8); }),
       "x.gguf: metadata key 'llama.expert_count': is 8: heddle does not support mixture of experts"},
      {llama([](GgufBuilder& b) { b.f32("llama.final_logit_softcapping", 30.0f); }),
       "x.gguf: metadata key 'llama.final_logit_softcapping': is 30: heddle does not support soft-capping of logits"},
      {llama([](GgufBuilder& b) { b.f32("llama.attn_logit_softcapping", 50.0f); }),
       "x.gguf: metadata key 'llama.attn_logit_softcapping': is 50: heddle does not support soft-capping of attention "
       "scores"},
      {llama([](GgufBuilder& b) { b.f32("llama.logit_scale", 0.5f); }),
       "x.gguf: metadata key 'llama.logit_scale': is 0.5: heddle does not support scaling of logits"},
      {llama([](GgufBuilder& b) { b.boolean("llama.attention.causal", false); }),
       "x.gguf: metadata key 'llama.attention.causal': is 0: heddle does not support attention that is not causal"},
      {llama([](GgufBuilder& b) { b.string("llama.expert_count", "8"); }),
       "x.gguf: metadata key 'llama.expert_count': has type string, expected a number"},
      {llama([](GgufBuilder& b) { b.string("llama.rope.scaling.type", "yarn"); }),
       "x.gguf: metadata key 'llama.rope.scaling.type': is 'yarn', which heddle does not support; supported: none, "
       "linear"},
      {llama([](GgufBuilder& b) { b.string("llama.rope.scaling.type", "longrope"); }),
       "x.gguf: metadata key 'llama.rope.scaling.type': is 'longrope', which heddle does not support; supported: none, "
       "linear"},
      {llama([](GgufBuilder& b) { b.f32_tensor("rope_factors_long.weight", {8}); }),
       "x.gguf: tensor 'rope_factors_long.weight': heddle does not support LongRoPE"},
      {llama([](GgufBuilder& b) {
         b.numbers<int32_t>("llama.rope.dimension_sections", GgufType::i32, {1, 2, 3});
       }),
       "x.gguf: metadata key 'llama.rope.dimension_sections': heddle does not support rotary embedding over several "
       "axes"},
      {llama([](GgufBuilder& b) { b.u32("llama.rope.dimension_count", 8); }),
       "x.gguf: metadata key 'llama.rope.dimension_count': is 8: heddle does not support rotating a part of the 16 "
       "dimensions of a head"},
      {llama([](GgufBuilder& b) { b.u32("llama.attention.value_length", 8); }),
       "x.gguf: metadata key 'llama.attention.value_length': is 8: heddle does not support lengths other than the "
       "heads' "
       "16"},
      {llama([](GgufBuilder& b) { b.u32("llama.attention.sliding_window", 1024); }),
       "x.gguf: metadata key 'llama.attention.sliding_window': is 1024: heddle does not support sliding windows for "
       "llama "
       "models"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.message);
    CHECK(error_of(row.file()) == row.message);
  }
}

TEST_CASE("features with neutral values, and a window as long as the context, are no obstacle") {
  CHECK(error_of(sample("llama")
                     .u32("llama.expert_count", 0)
                     .f32("llama.final_logit_softcapping", 0.0f)
                     .f32("llama.logit_scale", 1.0f)
                     .boolean("llama.attention.causal", true)
                     .u32("llama.attention.sliding_window", 2048)
                     .u32("llama.rope.dimension_count", 16)
                     .string("general.type", "model")) == "");
}

TEST_CASE("impossible numbers are refused with the key") {
  const auto with = [](const char* key, uint32_t value) {
    const std::string full = std::string("llama.") + key;
    return error_of(sample("llama").without(full).u32(full, value));
  };
  CHECK(with("block_count", 0) == "x.gguf: metadata key 'llama.block_count': is 0, expected 1 to 16777216");
  CHECK(with("block_count", 1000000) ==
        "x.gguf: metadata key 'llama.block_count': is 1000000, but there is no tensor blk.999999.attn_norm.weight");
  CHECK(with("block_count", 4294967295u) ==
        "x.gguf: metadata key 'llama.block_count': is 4294967295, expected 1 to 16777216");
  CHECK(with("embedding_length", 128) ==
        "x.gguf: metadata key 'llama.embedding_length': is 128, but tensor 'token_embd.weight' has shape [64, 10]");
  CHECK(with("feed_forward_length", 0) ==
        "x.gguf: metadata key 'llama.feed_forward_length': is 0, expected 1 to 16777216");
  CHECK(with("context_length", 0) == "x.gguf: metadata key 'llama.context_length': is 0, expected 1 to 16777216");
  CHECK(with("attention.head_count", 0) ==
        "x.gguf: metadata key 'llama.attention.head_count': is 0, expected 1 to 16777216");
  CHECK(with("attention.head_count_kv", 0) ==
        "x.gguf: metadata key 'llama.attention.head_count_kv': is 0, expected 1 to 16777216");
  CHECK(with("attention.head_count_kv", 3) ==
        "x.gguf: metadata key 'llama.attention.head_count_kv': is 3, which does not divide attention.head_count 4");
  CHECK(with("attention.head_count", 6) ==
        "x.gguf: metadata key 'llama.attention.head_count': is 6, which does not divide embedding_length 64");
  CHECK(with("attention.head_count", 64) ==
        "x.gguf: metadata key 'llama.attention.head_count': gives 1 dimensions a head, which rotary embedding needs to "
        "be "
        "even");
  CHECK(with("attention.key_length", 15) ==
        "x.gguf: metadata key 'llama.attention.key_length': gives 15 dimensions a head, which rotary embedding needs "
        "to be "
        "even");
  CHECK(with("attention.key_length", 1u << 24) ==
        "x.gguf: metadata key 'llama.attention.key_length': gives 4 heads of 16777216 dimensions, 16777216 together at "
        "most");
  const auto with_float = [](const char* key, float value) {
    const std::string full = std::string("llama.") + key;
    return error_of(sample("llama").without(full).f32(full, value));
  };
  CHECK(with_float("attention.layer_norm_rms_epsilon", 0.0f) ==
        "x.gguf: metadata key 'llama.attention.layer_norm_rms_epsilon': is 0, expected a positive number");
  CHECK(with_float("attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN()) ==
        "x.gguf: metadata key 'llama.attention.layer_norm_rms_epsilon': is nan, expected a positive number");
  CHECK(with_float("rope.freq_base", -1.0f) ==
        "x.gguf: metadata key 'llama.rope.freq_base': is -1, expected a positive number");
  CHECK(with_float("rope.scaling.factor", 0.0f) ==
        "x.gguf: metadata key 'llama.rope.scaling.factor': is 0, expected a positive number");
  CHECK(error_of(gemma(6).u32("gemma3.attention.sliding_window_pattern", 0)) ==
        "x.gguf: metadata key 'gemma3.attention.sliding_window_pattern': is 0, expected at least 1");
  CHECK(
      error_of(gemma(3).numbers<uint8_t>("gemma3.attention.sliding_window_pattern", GgufType::boolean, {0, 1})) ==
      "x.gguf: metadata key 'gemma3.attention.sliding_window_pattern': is array of bool 2 elements, expected array of "
      "bool, one for each of 3 layers");
}

TEST_CASE("a required key that is missing is named, each") {
  for (const char* key : {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
                          "llama.context_length", "llama.attention.head_count"}) {
    CHECK(error_of(sample("llama").without(key)) ==
          std::string("x.gguf: metadata key '") + key + "': is missing (uint32 expected)");
  }
  CHECK(error_of(sample("llama").without("llama.attention.layer_norm_rms_epsilon")) ==
        "x.gguf: metadata key 'llama.attention.layer_norm_rms_epsilon': is missing (float32 expected)");
  CHECK(error_of(gemma(6).without("gemma3.rope.freq_base")) ==
        "x.gguf: metadata key 'gemma3.rope.freq_base': is missing (float32 expected)");
}

TEST_CASE("rotary divisors of a wrong shape or value are refused") {
  CHECK(error_of(sample("llama").f32_tensor("rope_freqs.weight", {4})) ==
        "x.gguf: tensor 'rope_freqs.weight' is F32 of shape [4], expected F32 of shape [8]");
  CHECK(error_of(sample("llama").tensor("rope_freqs.weight", 1, {8}, std::string(16, '\0'))) ==
        "x.gguf: tensor 'rope_freqs.weight' is F16 of shape [8], expected F32 of shape [8]");
  CHECK(error_of(sample("llama").f32_tensor("rope_freqs.weight", {8})) ==
        "x.gguf: tensor 'rope_freqs.weight': element 0 is 0, expected a positive number");
}

TEST_CASE("a vocabulary that does not match the embedding is refused") {
  CHECK(error_of(sample("llama").strings("tokenizer.ggml.tokens", std::vector<std::string>(11, "t"))) ==
        "x.gguf: metadata key 'tokenizer.ggml.tokens' has 11 tokens, but tensor 'token_embd.weight' has 10 rows");
  CHECK(error_of(sample("llama").strings("tokenizer.ggml.tokens", std::vector<std::string>(10, "t"))) == "");
  GgufBuilder builder;
  builder.string("general.architecture", "llama");
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "context_length"}) {
    builder.u32(std::string("llama.") + key, 1);
  }
  CHECK(error_of(builder.f32_tensor("blk.0.attn_norm.weight", {1})) == "x.gguf: tensor 'token_embd.weight' is missing");
}

TEST_CASE("both test models have the configurations that their authors published") {
  const auto open = [](const std::string& name) {
    Result<GgufSet> set = GgufSet::open(std::string(HEDDLE_SOURCE_DIR "/models/") + name);
    REQUIRE_MESSAGE(set.has_value(), set.error().message << " (tools/test installs the models)");
    Result<ModelConfig> config = read_config(*set);
    REQUIRE_MESSAGE(config.has_value(), config.error().message);
    return std::move(*config);
  };
  const ModelConfig smol = open("SmolLM2-135M-Instruct.Q4_1.gguf");
  CHECK(smol.family == Family::llama);
  CHECK(smol.n_layers == 30);
  CHECK(smol.hidden == 576);
  CHECK(smol.ffn == 1536);
  CHECK(smol.n_heads == 9);
  CHECK(smol.n_kv_heads == 3);
  CHECK(smol.head_dim == 64);
  CHECK(smol.vocab_size == 49152);
  CHECK(smol.context_length == 8192);
  CHECK(smol.norm_epsilon == 1e-5f);
  CHECK(smol.rope_global.base == 100000.0f);
  CHECK(smol.attention_scale == 0.125f);
  CHECK(smol.tied_head);

  const ModelConfig gemma3 = open("gemma-3-270m-q4_k_m.gguf");
  CHECK(gemma3.family == Family::gemma3);
  CHECK(gemma3.n_layers == 18);
  CHECK(gemma3.hidden == 640);
  CHECK(gemma3.ffn == 2048);
  CHECK(gemma3.n_heads == 4);
  CHECK(gemma3.n_kv_heads == 1);
  CHECK(gemma3.head_dim == 256);
  CHECK(gemma3.vocab_size == 262144);
  CHECK(gemma3.context_length == 32768);
  CHECK(gemma3.window == 512);
  CHECK(gemma3.norm_epsilon == 1e-6f);
  CHECK(gemma3.rope_global.base == 1000000.0f);
  CHECK(gemma3.rope_local.base == 10000.0f);
  CHECK(gemma3.attention_scale == 0.0625f);
  CHECK(gemma3.embedding_scale == std::sqrt(640.0f));
  CHECK(gemma3.tied_head);
  CHECK(gemma3.window_of(4) == 512);
  CHECK(gemma3.window_of(5) == 0);
}

}  // namespace
}  // namespace heddle::model
