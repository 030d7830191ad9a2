// The families' dataflow, on a device of plain loops, against transformers: tiny random models of every family, and the
// real ones on a short prompt.
#include <doctest/doctest.h>

#include "model/config.h"
#include "model/forward_harness.h"
#include "model/goldens.h"
#include "model/model.h"
#include "model/naive_device.h"

namespace heddle::model {
namespace {

struct Loaded {
  NaiveDevice device;
  std::unique_ptr<Model> model;
};

std::unique_ptr<Loaded> load(const std::string& path) {
  const auto files = GgufSet::open(path);
  REQUIRE_MESSAGE(files.has_value(), files.error().message << " (tools/test installs the models)");
  const auto config = read_config(*files);
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  auto loaded = std::make_unique<Loaded>();
  auto model = load_model(*files, *config, loaded->device, config->context_length);
  REQUIRE_MESSAGE(model.has_value(), model.error().message);
  loaded->model = std::move(*model);
  loaded->device.allocate_kv(loaded->model->kv(), 64, 16);
  return loaded;
}

std::unique_ptr<Loaded> load_tiny(const std::string& name) {
  return load(HEDDLE_SOURCE_DIR "/test/data/model/tiny_" + name + ".gguf");
}

void check_golden(Loaded& loaded, const GoldenPrompt& prompt, uint32_t chunk) {
  std::vector<uint32_t> positions;
  for (const GoldenRow& row : prompt.rows) positions.push_back(row.position);
  const auto logits = forward_logits(*loaded.model, loaded.device, prompt.ids, positions, chunk);
  REQUIRE(logits.size() == positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    CAPTURE(prompt.name);
    CAPTURE(positions[i]);
    CHECK(worst_difference(prompt.rows[i], logits[i]) < 1e-4);
  }
}

TEST_CASE("every family computes what transformers computes, in one chunk and in several") {
  for (const std::string name : {"llama", "llama3", "qwen2", "qwen3", "gemma3"}) {
    CAPTURE(name);
    const auto loaded = load_tiny(name);
    const Goldens goldens = read_goldens("tiny_" + name + ".txt");
    for (const uint32_t chunk : {1u, 7u, 56u}) check_golden(*loaded, goldens.prompts.front(), chunk);
  }
}

TEST_CASE("the real models compute what transformers computes on a short prompt") {
  for (const auto& [file, goldens] : {std::pair{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2_goldens.txt"},
                                      std::pair{"gemma-3-270m-q4_k_m.gguf", "gemma3_goldens.txt"}}) {
    const auto loaded = load(std::string(HEDDLE_SOURCE_DIR "/models/") + file);
    check_golden(*loaded, read_goldens(goldens).prompt("france"), 16);
  }
}

TEST_CASE("logits do not depend on which rows they are asked for") {
  for (const std::string name : {"llama", "gemma3"}) {
    const auto loaded = load_tiny(name);
    const std::vector<TokenId> ids = {5, 9, 33, 2, 71, 8};
    const auto all = forward_logits(*loaded->model, loaded->device, ids, {0, 1, 2, 3, 4, 5}, 6);
    const auto some = forward_logits(*loaded->model, loaded->device, ids, {1, 5}, 6);
    CHECK(some[0] == all[1]);
    CHECK(some[1] == all[5]);
  }
}

TEST_CASE("past the last attention only rows with logits are computed, and without any nothing past the last KV is") {
  const auto loaded = load_tiny("llama");
  NaiveDevice& device = loaded->device;
  const std::vector<TokenId> ids = {5, 9, 33, 2, 71, 8};
  device.trace.clear();
  forward_logits(*loaded->model, device, ids, {5}, 6);
  const auto count = [&](const std::string& op) { return std::count(device.trace.begin(), device.trace.end(), op); };
  CHECK(count("embed [6, 32]") == 1);
  CHECK(count("blk.0.ffn_down.weight [6, 32]") == 1);
  CHECK(count("blk.2.attn_q.weight [6, 64]") == 1);
  CHECK(count("blk.2.attn_output.weight [1, 32]") == 1);
  CHECK(count("blk.2.ffn_down.weight [1, 32]") == 1);
  CHECK(count("output.weight [1, 96]") == 1);
  device.trace.clear();
  forward_logits(*loaded->model, device, ids, {}, 6);
  CHECK(device.trace.back() == "rope_store [6, 64]");
  CHECK(count("rope_store [6, 64]") == 3);
  CHECK(count("attend [6, 32]") == 2);
}

TEST_CASE("a tied head is the embedding's own packed table") {
  const auto tied = load_tiny("qwen2");
  const auto own = load_tiny("qwen3");
  CHECK(tied->model->config().tied_head);
  CHECK(!own->model->config().tied_head);
  const auto head_of = [](Loaded& loaded) {
    forward_logits(*loaded.model, loaded.device, {1}, {0}, 1);
    return loaded.device.trace.back();
  };
  CHECK(head_of(*tied) == "copy_to_host [1, 96]");
  CHECK(std::count(tied->device.trace.begin(), tied->device.trace.end(), "token_embd.weight [1, 96]") == 1);
  head_of(*own);
  CHECK(std::count(own->device.trace.begin(), own->device.trace.end(), "output.weight [1, 96]") == 1);
}

TEST_CASE("the activation arithmetic covers what a forward pass takes, to the byte when few rows have logits") {
  for (const std::string name : {"llama", "gemma3"}) {
    const auto loaded = load_tiny(name);
    const std::vector<TokenId> ids(40, 7);
    std::vector<uint32_t> all(40);
    std::iota(all.begin(), all.end(), 0u);
    for (const uint32_t n_head : {0u, 1u, 39u, 40u}) {
      // The naive device aborts when an arena overflows.
      loaded->device.allocate_arenas(1, activation_bytes(loaded->model->config(), loaded->device, 40, n_head));
      forward_logits(*loaded->model, loaded->device, ids, {all.begin(), all.begin() + n_head}, 40);
    }
  }
}

TEST_CASE("the memory need is arithmetic over the file and the configuration") {
  const auto files = GgufSet::open(HEDDLE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  REQUIRE(files.has_value());
  const auto config = read_config(*files);
  const NaiveDevice device;
  const MemoryNeed need = memory_need(*files, *config, device, device::Compute::automatic, 512, 128);
  CHECK(need.weights == files->tensor_bytes());
  CHECK(need.kv_per_token == 2 * 2 * 3 * 64 * 30);
  CHECK(need.activations == activation_bytes(*config, device, 512, 128));
  const MemoryNeed f32 = memory_need(*files, *config, device, device::Compute::f32, 512, 128);
  CHECK(f32.weights == uint64_t{134515008} * 4);
  CHECK(f32.kv_per_token == 2 * need.kv_per_token);
}

}  // namespace
}  // namespace heddle::model
