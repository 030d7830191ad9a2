#include "text/gguf_vocab.h"

#include <doctest/doctest.h>

#include "model/gguf_builder.h"
#include "model/gguf_set.h"

namespace heddle::text {
namespace {

using model::GgufBuilder;
using model::GgufFile;
using model::GgufType;

GgufBuilder sample() {
  GgufBuilder builder;
  builder.string("tokenizer.ggml.model", "llama")
      .string("tokenizer.ggml.pre", "default")
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "a"})
      .numbers<float>("tokenizer.ggml.scores", GgufType::f32, {0.0f, 0.0f, -1.5f})
      .numbers<int32_t>("tokenizer.ggml.token_type", GgufType::i32, {2, 3, 1})
      .strings("tokenizer.ggml.merges", {"a b"})
      .u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eot_token_id", 2)
      .boolean("tokenizer.ggml.add_bos_token", false);
  return builder;
}

std::string error_of(GgufBuilder builder) {
  const std::string bytes = builder.build();
  const GgufFile file = GgufFile::parse(model::as_bytes(bytes), "x.gguf").value();
  const Result<VocabData> data = read_vocab(file.metadata());
  return data ? "" : data.error().message;
}

TEST_CASE("tokenizer keys become vocabulary data, absent ones stay absent") {
  const std::string bytes = sample().build();
  const GgufFile file = GgufFile::parse(model::as_bytes(bytes), "x.gguf").value();
  const Result<VocabData> data = read_vocab(file.metadata());
  REQUIRE_MESSAGE(data.has_value(), data.error().message);
  CHECK(data->model == "llama");
  CHECK(data->pre == "default");
  CHECK(data->tokens == std::vector<std::string_view>{"<unk>", "<s>", "a"});
  CHECK(data->scores == std::vector<float>{0.0f, 0.0f, -1.5f});
  CHECK(data->types == std::vector<int32_t>{2, 3, 1});
  CHECK(data->merges == std::vector<std::string_view>{"a b"});
  CHECK(data->bos_id == 1);
  CHECK(data->eot_id == 2);
  CHECK(!data->eos_id.has_value());
  CHECK(data->add_bos == false);
  CHECK(!data->add_eos.has_value());
}

TEST_CASE("a missing or mistyped tokenizer key is an error that names it") {
  CHECK(error_of(sample().without("tokenizer.ggml.model")) ==
        "x.gguf: metadata key 'tokenizer.ggml.model': is missing (string expected)");
  CHECK(error_of(sample().without("tokenizer.ggml.tokens")) ==
        "x.gguf: metadata key 'tokenizer.ggml.tokens': is missing (array of string expected)");
  const auto retyped = [](std::string_view key) { return sample().without(key).f32(key, 1.0f); };
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
                          "tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token"}) {
    CAPTURE(key);
    CHECK(error_of(retyped(key))
              .starts_with(std::string("x.gguf: metadata key '") + key + "': has type float32, expected "));
  }
  CHECK(error_of(
            sample().without("tokenizer.ggml.scores").numbers<double>("tokenizer.ggml.scores", GgufType::f64, {1.0})) ==
        "x.gguf: metadata key 'tokenizer.ggml.scores': has type array of float64, expected array of float32");
}

TEST_CASE("the vocabularies of both test models are read whole") {
  struct Row {
    const char* file;
    const char* kind;
    const char* pre;
    size_t tokens, merges, scores;
    int64_t bos, eos;
  };
  for (const Row& row : {Row{"SmolLM2-135M-Instruct.Q4_1.gguf", "gpt2", "smollm", 49152, 48900, 0, 1, 2},
                         Row{"gemma-3-270m-q4_k_m.gguf", "llama", "default", 262144, 0, 262144, 2, 1}}) {
    CAPTURE(row.file);
    const Result<GgufFile> file = GgufFile::open(std::string(HEDDLE_SOURCE_DIR "/models/") + row.file);
    REQUIRE_MESSAGE(file.has_value(), file.error().message << " (tools/test installs the models)");
    const Result<VocabData> data = read_vocab(file->metadata());
    REQUIRE_MESSAGE(data.has_value(), data.error().message);
    CHECK(data->model == row.kind);
    CHECK(data->pre == row.pre);
    CHECK(data->tokens.size() == row.tokens);
    CHECK(data->types.size() == row.tokens);
    CHECK(data->merges.size() == row.merges);
    CHECK(data->scores.size() == row.scores);
    CHECK(data->bos_id == row.bos);
    CHECK(data->eos_id == row.eos);
    const Result<Vocab> vocab = Vocab::create(*data);
    REQUIRE_MESSAGE(vocab.has_value(), vocab.error().message);
    CHECK(vocab->size() == static_cast<int32_t>(row.tokens));
  }
}

}  // namespace
}  // namespace heddle::text
