#pragma once
// A tiny llama on the naive device behind a runner, and plans for it by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "engine/device_runner.h"
#include "model/config.h"
#include "model/naive_device.h"

namespace heddle::engine {

inline void rethrow(const std::exception_ptr& thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

using sched::Outputs;
using sched::SeqStep;
using sched::StepPlan;
using sched::TokenSource;

struct RunnerFixture {
  boost::asio::io_context io;
  std::unique_ptr<Loop> loop = make_loop(io);
  std::shared_ptr<ModelWeights> weights;
  NaiveDevice* device = nullptr;
  std::unique_ptr<DeviceRunner> runner;
  std::vector<BlockId> blocks[4];
  int n_loads = 0;
  device::SlotSampling sampling{.temperature = 0.0f};

  explicit RunnerFixture(uint32_t depth = 1, uint32_t all_logits_rows = 0) {
    auto naive = std::make_unique<NaiveDevice>();
    device = naive.get();
    auto loaded = load();
    REQUIRE(loaded.has_value());
    weights = std::make_shared<ModelWeights>(
        io.get_executor(), *loop, std::move(*loaded),
        WeightSource{.load = [this] { return load(); }, .unload = [] {}, .drop_file_cache = {}});
    runner = std::make_unique<DeviceRunner>(io.get_executor(), std::move(naive), weights,
                                            DeviceRunnerOptions{.max_num_seqs = 4,
                                                                .max_num_batched_tokens = 64,
                                                                .n_blocks = 16,
                                                                .block_size = 16,
                                                                .pipeline_depth = depth,
                                                                .hash_logits = true,
                                                                .all_logits_rows = all_logits_rows});
    for (uint32_t s = 0; s < 4; ++s)
      for (uint32_t b = 0; b < 4; ++b) blocks[s].push_back(BlockId{s * 4 + (3 - b)});
  }

  // The model, loaded into the device.
  Result<std::unique_ptr<model::Model>> load() {
    ++n_loads;
    const auto files = model::GgufSet::open(HEDDLE_SOURCE_DIR "/test/data/model/tiny_llama.gguf");
    if (!files) return tl::unexpected(files.error());
    const auto config = model::read_config(*files);
    if (!config) return tl::unexpected(config.error());
    return model::load_model(*files, *config, *device, 64);
  }
  Result<void> wake() {
    Result<void> result = fail("not awake yet");
    bool done = false;
    boost::asio::co_spawn(io, wake_into(result, done), rethrow);
    io.restart();
    const auto work = boost::asio::make_work_guard(io);  // loading posts to the loop when it is done
    while (!done) io.run_one();
    return result;
  }
  boost::asio::awaitable<void> wake_into(Result<void>& result, bool& done) {
    auto woken = co_await runner->wake_up();
    result = std::move(woken);
    done = true;
  }

  static void add(StepPlan& plan, SeqStep seq) {
    plan.seqs.push_back(seq);
    plan.n_rows += seq.n_tokens;
    plan.n_sampled += seq.outputs == Outputs::sample;
  }
  SeqStep host(uint32_t slot, std::span<const TokenId> tokens, uint32_t position, Outputs outputs, uint32_t index = 0) {
    return {.id = SeqId{slot},
            .slot = SlotId{slot},
            .n_tokens = static_cast<uint32_t>(tokens.size()),
            .first_position = position,
            .source = TokenSource::host,
            .outputs = outputs,
            .token_index = index,
            .tokens = tokens,
            .blocks = blocks[slot]};
  }
  SeqStep next(uint32_t slot, uint32_t position, uint32_t index) {
    return {.id = SeqId{slot},
            .slot = SlotId{slot},
            .n_tokens = 1,
            .first_position = position,
            .source = TokenSource::slot,
            .outputs = Outputs::sample,
            .token_index = index,
            .blocks = blocks[slot]};
  }
  void join(StepPlan& plan, uint32_t slot) { plan.joined.push_back({SlotId{slot}, &sampling, {}, {}}); }

  Ticket go(const StepPlan& plan, std::span<const TokenMask> masks = {}) {
    const Ticket ticket = runner->launch(plan);
    runner->sample(ticket, {.masks = masks});
    return ticket;
  }
  std::vector<SeqResult> wait(Ticket ticket) {
    std::vector<SeqResult> results;
    bool done = false;
    boost::asio::co_spawn(io, wait_into(ticket, results, done), rethrow);
    io.restart();
    io.run();
    REQUIRE(done);
    return results;
  }
  boost::asio::awaitable<void> wait_into(Ticket ticket, std::vector<SeqResult>& results, bool& done) {
    auto result = co_await runner->wait(ticket);
    REQUIRE(result.has_value());
    results.assign(result->seqs.begin(), result->seqs.end());
    CHECK(result->begin <= result->end);
    done = true;
  }
  size_t count(const std::string& op) const {
    return static_cast<size_t>(std::count(device->trace.begin(), device->trace.end(), op));
  }
};

inline const std::vector<TokenId> kPrompt = {5, 15, 39, 77, 33, 3};

}  // namespace heddle::engine
