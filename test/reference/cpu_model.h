#pragma once
// A real model on the CPU device behind a runner, driven step by step from a test: the loop, the team and the plans by
// hand. Slots and blocks are the test's own affair.
#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/loop.h"
#include "base/mapped_file.h"
#include "cpu/cpu_device.h"
#include "engine/device_runner.h"
#include "model/config.h"
#include "model/gguf_set.h"

namespace heddle {

inline constexpr const char* kSmolLm = HEDDLE_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char* kGemma = HEDDLE_SOURCE_DIR "/models/gemma-3-270m-q4_k_m.gguf";

inline model::GgufSet open_model(const std::string& path) {
  auto files = model::GgufSet::open(path);
  REQUIRE_MESSAGE(files.has_value(), files.error().message << " (tools/test installs the models)");
  return std::move(*files);
}

// One sequence of a test: what it holds, and what the model said so far.
struct TestSeq {
  uint32_t slot = 0;
  std::vector<BlockId> blocks;
  std::vector<TokenId> tokens;  // prompt, then what was sampled
  uint32_t n_prompt = 0;
  uint32_t n_computed = 0;
  device::SlotSampling sampling;
  std::vector<uint64_t> hashes;  // of the logits row of each sampled token

  TestSeq(uint32_t slot_, std::vector<TokenId> prompt, std::vector<BlockId> blocks_,
          device::SlotSampling sampling_ = {})
      : slot(slot_),
        blocks(std::move(blocks_)),
        tokens(std::move(prompt)),
        n_prompt(static_cast<uint32_t>(tokens.size())),
        sampling(std::move(sampling_)) {}

  uint32_t n_generated() const { return static_cast<uint32_t>(tokens.size()) - n_prompt; }
  std::vector<TokenId> generated() const { return {tokens.begin() + n_prompt, tokens.end()}; }

  // Plans the next `n` rows at most, and the sample if they reach the newest token.
  void plan(sched::StepPlan& plan, uint32_t n, sched::Outputs outputs = sched::Outputs::sample) {
    n = std::min(n, static_cast<uint32_t>(tokens.size()) - n_computed);
    const bool newest = n_computed + n == tokens.size();
    if (outputs == sched::Outputs::sample && !newest) outputs = sched::Outputs::none;
    plan.seqs.push_back({.id = SeqId{slot},
                         .slot = SlotId{slot},
                         .n_tokens = n,
                         .first_position = n_computed,
                         .source = sched::TokenSource::host,
                         .outputs = outputs,
                         .token_index = n_generated(),
                         .tokens = std::span(tokens).subspan(n_computed, n),
                         .blocks = blocks});
    plan.n_rows += n;
    plan.n_sampled += outputs == sched::Outputs::sample;
    n_computed += n;
  }
  void take(const engine::SeqResult& result) {
    if (result.token < 0) return;
    tokens.push_back(result.token);
    hashes.push_back(result.logits_hash);
  }
};

class CpuModel {
 public:
  struct Options {
    device::Compute compute = device::Compute::automatic;
    cpu::Isa isa = cpu::available_isas().back();
    uint32_t threads = 2;
    uint32_t depth = 1;
    uint32_t max_rows = 64;
    uint32_t max_seqs = 32;
    uint32_t n_blocks = 160;
    uint32_t n_positions = 1280;
    bool hash_logits = false;
    uint32_t all_logits_rows = 0;
  };

  // `n_runners` compute on one team with one copy of the weights.
  CpuModel(const std::string& path, Options options, uint32_t n_runners = 1)
      : loop_(make_loop(io_)),
        team_(*loop_, {.helpers = options.threads - 1, .loop_is_member = true}),
        device_(team_, {.isa = options.isa, .compute = options.compute, .threads_why = {}}) {
    auto model = load(path, options.n_positions);
    REQUIRE_MESSAGE(model.has_value(), model.error().message);
    weights_ = std::make_shared<engine::ModelWeights>(
        io_.get_executor(), *loop_, std::move(*model),
        engine::WeightSource{.load = [this, path, n = options.n_positions] { return load(path, n); },
                             .unload = [this] { device_.unload(); },
                             .drop_file_cache = [path] { drop_file_cache(path); }});
    for (uint32_t i = 0; i < n_runners; ++i)
      runners_.push_back(std::make_unique<engine::DeviceRunner>(
          io_.get_executor(), device_.sibling(), weights_,
          engine::DeviceRunnerOptions{.max_num_seqs = options.max_seqs,
                                      .max_num_batched_tokens = options.max_rows,
                                      .n_blocks = options.n_blocks,
                                      .block_size = 16,
                                      .pipeline_depth = options.depth,
                                      .hash_logits = options.hash_logits,
                                      .all_logits_rows = options.all_logits_rows}));
    occupied_.resize(n_runners);
  }

  engine::DeviceRunner& runner(uint32_t i = 0) { return *runners_[i]; }
  uint32_t vocab_size() const { return weights_->model().config().vocab_size; }
  const engine::ModelWeights& weights() const { return *weights_; }
  size_t weight_bytes() const { return device_.weight_bytes(); }
  boost::asio::io_context& io() { return io_; }

  engine::Ticket launch(const sched::StepPlan& plan, uint32_t i = 0) {
    const engine::Ticket ticket = runners_[i]->launch(plan);
    runners_[i]->sample(ticket, {});
    return ticket;
  }
  std::vector<engine::SeqResult> wait(engine::Ticket ticket, uint32_t i = 0) {
    std::vector<engine::SeqResult> results;
    bool done = false;
    boost::asio::co_spawn(io_, wait_into(*runners_[i], ticket, results, done), rethrow);
    run_until([&] { return done; });
    return results;
  }
  void sleep(engine::SleepLevel level, uint32_t i = 0) {
    runners_[i]->sleep(level);
    if (level != engine::SleepLevel::pause) occupied_[i].clear();
  }
  Result<void> wake(uint32_t i = 0) {
    Result<void> result = fail("not awake yet");
    bool done = false;
    boost::asio::co_spawn(io_, wake_into(*runners_[i], result, done), rethrow);
    run_until([&] { return done; });
    return result;
  }
  template <class F>
  void run_until(F done) {
    io_.restart();
    const auto work = boost::asio::make_work_guard(io_);
    while (!done()) io_.run_one();
  }
  std::vector<engine::SeqResult> run(const sched::StepPlan& plan) { return wait(launch(plan)); }

  // The sequence takes its slot over, from its start or (with generated tokens) after a preemption.
  void join(sched::StepPlan& plan, TestSeq& seq, uint32_t i = 0) {
    if (occupied_[i].insert(seq.slot).second == false) plan.left.push_back(SlotId{seq.slot});
    seq.n_computed = 0;
    plan.joined.push_back({SlotId{seq.slot}, &seq.sampling, std::span(seq.tokens).first(seq.n_prompt),
                           std::span(seq.tokens).subspan(seq.n_prompt)});
  }

 private:
  static boost::asio::awaitable<void> wait_into(engine::DeviceRunner& runner, engine::Ticket ticket,
                                                std::vector<engine::SeqResult>& results, bool& done) {
    auto result = co_await runner.wait(ticket);
    REQUIRE(result.has_value());
    results.assign(result->seqs.begin(), result->seqs.end());
    done = true;
  }

  static boost::asio::awaitable<void> wake_into(engine::DeviceRunner& runner, Result<void>& result, bool& done) {
    auto woken = co_await runner.wake_up();
    result = std::move(woken);
    done = true;
  }
  static void rethrow(const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
  }
  Result<std::unique_ptr<model::Model>> load(const std::string& path, uint32_t n_positions) {
    const auto files = model::GgufSet::open(path);
    if (!files) return fail(files.error().message + " (tools/test installs the models)");
    const auto config = model::read_config(*files);
    if (!config) return tl::unexpected(config.error());
    return model::load_model(*files, *config, device_, n_positions);
  }

  boost::asio::io_context io_{1};
  std::unique_ptr<Loop> loop_;
  cpu::Team team_;
  cpu::CpuDevice device_;  // for loading; the runners have siblings
  std::shared_ptr<engine::ModelWeights> weights_;
  std::vector<std::unique_ptr<engine::DeviceRunner>> runners_;
  std::vector<std::set<uint32_t>> occupied_;  // slots of each runner
};

// Blocks [first, first + n), each once, in an order that is not ascending: the odd ones downwards, then the even ones.
inline std::vector<BlockId> some_blocks(uint32_t first, uint32_t n) {
  std::vector<BlockId> blocks;
  for (uint32_t i = n; i-- > 0;)
    if (i % 2 == 1) blocks.push_back(BlockId{first + i});
  for (uint32_t i = 0; i < n; i += 2) blocks.push_back(BlockId{first + i});
  HEDDLE_CHECK_OP(blocks.size(), ==, n);
  return blocks;
}

}  // namespace heddle
