#pragma once
// Engines over stubs in a group, on one loop.
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "engine/engine_group.h"

namespace heddle::engine {

class GroupBench {
 public:
  Config config;
  StubOptions stub;
  GroupOptions options;
  boost::asio::io_context io{1};
  std::vector<StubRunner*> runners;
  std::vector<std::shared_ptr<CallTrace>> traces;
  std::unique_ptr<EngineGroup> group;
  bool running = false;

  explicit GroupBench(uint32_t n = 2, uint32_t depth = 1, uint32_t n_blocks = 64) : n_(n) {
    config.scheduler.n_blocks = n_blocks;
    config.scheduler.max_num_seqs = 64;
    config.pipeline_depth = depth;
  }

  EngineGroup& build() {
    if (group) return *group;
    stub.max_num_seqs = config.scheduler.max_num_seqs;
    stub.n_blocks = config.scheduler.n_blocks;
    stub.block_size = config.scheduler.block_size;
    stub.pipeline_depth = config.pipeline_depth;
    std::vector<std::unique_ptr<Engine>> engines;
    for (uint32_t rank = 0; rank < n_; ++rank) {
      traces.push_back(std::make_shared<CallTrace>());
      stub.trace = traces.back();
      auto runner = std::make_unique<StubRunner>(stub);
      runners.push_back(runner.get());
      engines.push_back(std::make_unique<Engine>(config, std::move(runner), nullptr));
    }
    group = std::make_unique<EngineGroup>(std::move(engines), options);
    return *group;
  }
  Result<void, Refusal> try_submit(Request request, std::shared_ptr<Recorder> sink, Placement placement = {}) {
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return build().submit(std::move(requests), {std::move(sink)}, placement);
  }
  std::shared_ptr<Recorder> submit(Request request, Placement placement = {}) {
    auto sink = std::make_shared<Recorder>();
    REQUIRE(try_submit(std::move(request), sink, placement).has_value());
    return sink;
  }
  Refusal refusal_of(Request request, Placement placement = {}) {
    const auto accepted = try_submit(std::move(request), std::make_shared<Recorder>(), placement);
    REQUIRE_FALSE(accepted.has_value());
    return accepted.error();
  }
  // On which engine a request is.
  int rank_of(const std::string& id) {
    for (uint32_t rank = 0; rank < n_; ++rank)
      if (group->engine(rank).is_live(id)) return static_cast<int>(rank);
    return -1;
  }

  void start() {
    build();
    running = true;
    boost::asio::co_spawn(io, group->run(), [this](const std::exception_ptr& thrown) {
      running = false;
      if (thrown) std::rethrow_exception(thrown);
    });
  }
  template <typename Done>
  void run_until(Done done) {
    if (!running) start();
    io.restart();
    while (!done()) REQUIRE(io.run_one() == 1);
  }
  // Awaits an operation of the group.
  template <typename T>
  T await(boost::asio::awaitable<T> operation) {
    std::optional<T> result;
    boost::asio::co_spawn(io, std::move(operation), [&](const std::exception_ptr& thrown, T value) {
      if (thrown) std::rethrow_exception(thrown);
      result = std::move(value);
    });
    run_until([&] { return result.has_value(); });
    return *result;
  }
  void await(boost::asio::awaitable<void> operation) {
    bool done = false;
    boost::asio::co_spawn(io, std::move(operation), [&](const std::exception_ptr& thrown) {
      if (thrown) std::rethrow_exception(thrown);
      done = true;
    });
    run_until([&] { return done; });
  }
  // Runs to the end of all requests, and of the loops.
  void finish() {
    if (!running) start();
    group->stop();
    io.restart();
    io.run();
    REQUIRE_FALSE(running);
    for (uint32_t rank = 0; rank < n_; ++rank) {
      CAPTURE(rank);
      CHECK(group->engine(rank).violations() == std::vector<std::string>{});
      CHECK(group->engine(rank).snapshot().blocks_held == 0);
    }
  }
  std::vector<TokenId> expected(std::vector<TokenId> prefix, uint32_t n, uint64_t seed = 0) const {
    std::vector<TokenId> out;
    for (uint32_t i = 0; i < n; ++i) {
      out.push_back(StubRunner::token_after(prefix, seed, stub.vocab_size));
      prefix.push_back(out.back());
    }
    return out;
  }

 private:
  uint32_t n_;
};

}  // namespace heddle::engine
