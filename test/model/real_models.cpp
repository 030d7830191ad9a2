// Files that others wrote: the two models that tools/test installs, and the fuzz corpus.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "device/dequantize.h"
#include "model/config.h"
#include "model/gguf_set.h"

namespace heddle::model {
namespace {

GgufSet open_model(const std::string& name) {
  Result<GgufSet> set = GgufSet::open(std::string(HEDDLE_SOURCE_DIR "/models/") + name);
  REQUIRE_MESSAGE(set.has_value(), set.error().message << " (tools/test installs the models)");
  return std::move(*set);
}

std::map<std::string, int> count_types(const GgufSet& set) {
  std::map<std::string, int> counts;
  set.each_tensor([&](const GgufTensor& tensor) { ++counts[std::string(device::quant_name(tensor.type))]; });
  return counts;
}

uint64_t fnv1a(const void* data, size_t bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) value = (value ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
  return value;
}

TEST_CASE("SmolLM2 135M opens: keys, vocabulary and tensors are what the reference reader lists") {
  const GgufSet set = open_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  const GgufMetadata& m = set.metadata();
  CHECK(m.size() == 33);
  CHECK(m.get_string("general.architecture").value() == "llama");
  CHECK(m.get_u32("llama.block_count").value() == 30);
  CHECK(m.get_f32("llama.rope.freq_base").value() == 100000.0f);
  CHECK(m.get_strings("tokenizer.ggml.tokens").value().size() == 49152);
  CHECK(m.get_strings("tokenizer.ggml.merges").value().size() == 48900);
  CHECK(*m.get_strings("tokenizer.ggml.tokens").value().begin() == "<|endoftext|>");
  CHECK(set.n_tensors() == 272);
  CHECK(count_types(set) == std::map<std::string, int>{{"Q4_1", 210}, {"F32", 61}, {"Q8_0", 1}});
  CHECK(set.find("token_embd.weight")->shape() == "[576, 49152]");
  CHECK(set.find("output.weight") == nullptr);
}

TEST_CASE("Gemma 3 270M opens: keys, vocabulary and tensors are what the reference reader lists") {
  const GgufSet set = open_model("gemma-3-270m-q4_k_m.gguf");
  const GgufMetadata& m = set.metadata();
  CHECK(m.size() == 33);
  CHECK(m.get_string("general.architecture").value() == "gemma3");
  CHECK(m.get_u32("gemma3.attention.sliding_window").value() == 512);
  CHECK(m.get_strings("tokenizer.ggml.tokens").value().size() == 262144);
  CHECK(m.get_f32s("tokenizer.ggml.scores").value().size() == 262144);
  CHECK(set.n_tensors() == 236);
  CHECK(count_types(set) ==
        std::map<std::string, int>{{"F32", 109}, {"Q5_0", 81}, {"Q4_K", 27}, {"Q8_0", 10}, {"Q6_K", 9}});
}

TEST_CASE("the fuzz corpus starts from files that are read to the end") {
  for (const char* family : {"llama", "qwen2", "gemma3"}) {
    CAPTURE(family);
    const Result<GgufSet> set = GgufSet::open(fmt::format("{}/test/data/fuzz/gguf/{}.gguf", HEDDLE_SOURCE_DIR, family));
    REQUIRE_MESSAGE(set.has_value(), set.error().message);
    const Result<ModelConfig> config = read_config(*set);
    REQUIRE_MESSAGE(config.has_value(), config.error().message);
    CHECK(family_name(config->family) == family);
  }
}

TEST_CASE("rows of real tensors dequantise to what the reference makes of them") {
  std::ifstream goldens(HEDDLE_SOURCE_DIR "/test/data/model/real_rows.txt");
  std::map<std::string, GgufSet> open;
  std::string line;
  size_t n_rows = 0;
  while (std::getline(goldens, line)) {
    if (line.empty() || line[0] == '#') continue;
    CAPTURE(line);
    std::vector<std::string> fields;  // model, tensor, type, cols, rows, "row=hash ..."
    for (size_t at = 0; at < line.size();) {
      const size_t end = std::min(line.find(" | ", at), line.size());
      fields.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    REQUIRE(fields.size() == 6);
    if (!open.contains(fields[0])) open.emplace(fields[0], open_model(fields[0]));
    const GgufTensor* tensor = open.at(fields[0]).find(fields[1]);
    REQUIRE(tensor != nullptr);
    CHECK(device::quant_name(tensor->type) == fields[2]);
    CHECK(std::to_string(tensor->cols()) == fields[3]);
    CHECK(std::to_string(tensor->rows()) == fields[4]);
    const device::RawTensor raw = tensor->raw();
    std::istringstream rows(fields[5]);
    for (std::string pair; rows >> pair; ++n_rows) {
      const size_t equals = pair.find('=');
      std::vector<float> row(raw.cols);
      device::dequantize_row(raw.type, raw.row(static_cast<uint32_t>(std::stoul(pair))), raw.cols, row.data());
      CHECK(fmt::format("{:016x}", fnv1a(row.data(), row.size() * sizeof(float))) == pair.substr(equals + 1));
    }
  }
  CHECK(n_rows == 37);
}

}  // namespace
}  // namespace heddle::model
