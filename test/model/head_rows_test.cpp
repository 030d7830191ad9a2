// Logits are made for the head rows that the batch names, in its order: rows may be left out, come again or come late.
#include <doctest/doctest.h>

#include <numeric>

#include "model/config.h"
#include "model/model.h"
#include "model/naive_device.h"

namespace heddle::model {
namespace {

std::vector<std::vector<float>> logits_of(const Model& model, NaiveDevice& device, const std::vector<TokenId>& ids,
                                          const std::vector<uint32_t>& head_rows) {
  const auto n = static_cast<uint32_t>(ids.size());
  const BlockId block{0};
  const device::BatchSeq seq{SlotId{0}, 0, n, 0, &block};
  std::vector<int32_t> positions(n);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<uint32_t> row_seq(n, 0);
  const device::Batch batch{n, {&seq, 1}, ids, positions, row_seq, head_rows};
  device.reset_arena(0);
  Forward forward(device, device.queue(), batch, 0);
  const device::Tensor logits = model.forward(forward);
  std::vector<std::vector<float>> out;
  for (uint32_t r = 0; r < logits.rows; ++r)
    out.emplace_back(logits.data + size_t{r} * logits.cols, logits.data + size_t{r + 1} * logits.cols);
  return out;
}

}  // namespace

TEST_CASE("every family gives the logits of the head rows in their order, though there may be more of them than rows") {
  for (const std::string name : {"llama", "qwen2", "qwen3", "gemma3"}) {
    CAPTURE(name);
    NaiveDevice device;
    const auto files = GgufSet::open(HEDDLE_SOURCE_DIR "/test/data/model/tiny_" + name + ".gguf");
    REQUIRE(files.has_value());
    const auto config = read_config(*files);
    REQUIRE(config.has_value());
    const auto model = load_model(*files, *config, device, 16);
    REQUIRE(model.has_value());
    device.allocate_kv((*model)->kv(), 1, 16);
    device.allocate_arenas(1, activation_bytes(*config, device, 4, 9));  // no byte more
    const std::vector<TokenId> ids = {5, 15, 39, 33};
    const auto all = logits_of(**model, device, ids, {0, 1, 2, 3});
    REQUIRE(all.size() == 4);
    CHECK(all[1] != all[3]);
    for (const std::vector<uint32_t>& head_rows : {std::vector<uint32_t>{3},
                                                   {3, 3},
                                                   {3, 2, 1, 0},
                                                   {3, 3, 3, 3},
                                                   {0, 1, 1, 3},
                                                   {1, 0, 0, 3, 3, 3, 2, 1, 0},
                                                   {}}) {
      const auto some = logits_of(**model, device, ids, head_rows);
      REQUIRE(some.size() == head_rows.size());
      for (size_t i = 0; i < head_rows.size(); ++i) CHECK(some[i] == all[head_rows[i]]);
    }
  }
}

}  // namespace heddle::model
