#pragma once
// An engine over the stub on a loop of its own, with sinks that remember everything.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/stub_runner.h"

namespace heddle::engine {

// What one request gave. Checks the order of calls as they come.
struct Recorder final : OutputSink {
  struct Choice {
    std::string text;
    std::vector<TokenId> tokens;
    std::optional<Finish> finish;
    uint32_t n_deltas = 0;
  };
  std::map<uint32_t, Choice> choices;
  Usage usage;
  Times times;
  int n_ends = 0;
  std::function<void(const Delta&)> also;

  void on_delta(const Delta& delta) override {
    Choice& choice = choices[delta.index];
    REQUIRE(n_ends == 0);
    REQUIRE_FALSE(choice.finish.has_value());
    choice.text += delta.text;
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    ++choice.n_deltas;
    if (delta.finish) choice.finish = *delta.finish;
    if (also) also(delta);
  }
  void on_end(const Usage& u, const Times& t) override {
    REQUIRE(n_ends == 0);
    for (const auto& [index, choice] : choices) REQUIRE(choice.finish.has_value());
    usage = u;
    times = t;
    ++n_ends;
  }
  const Choice& only() const {
    REQUIRE(choices.size() == 1);
    return choices.begin()->second;
  }
  FinishReason reason() const { return only().finish->reason; }
};

inline Request make_request(std::string id, std::vector<TokenId> prompt, uint32_t max_tokens) {
  Request request;
  request.id = std::move(id);
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.arrival = Arrival::now();
  return request;
}

// Tokens 1, 2, … n.
inline std::vector<TokenId> iota_prompt(uint32_t n, TokenId first = 1) {
  std::vector<TokenId> prompt(n);
  for (uint32_t i = 0; i < n; ++i) prompt[i] = first + static_cast<TokenId>(i);
  return prompt;
}

class EngineBench {
 public:
  Config config;
  StubOptions stub;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  boost::asio::io_context io{1};
  std::unique_ptr<Engine> engine;
  StubRunner* runner = nullptr;
  std::shared_ptr<CallTrace> trace = std::make_shared<CallTrace>();
  bool running = false;
  bool traced = true;

  explicit EngineBench(uint32_t depth = 1, uint32_t n_blocks = 64, uint32_t block_size = 16) {
    config.scheduler.n_blocks = n_blocks;
    config.scheduler.block_size = block_size;
    config.pipeline_depth = depth;
  }

  void build() {
    stub.max_num_seqs = config.scheduler.max_num_seqs;
    stub.n_blocks = config.scheduler.n_blocks;
    stub.block_size = config.scheduler.block_size;
    stub.pipeline_depth = config.pipeline_depth;
    if (traced) stub.trace = trace;
    auto owned = std::make_unique<StubRunner>(stub);
    runner = owned.get();
    engine = std::make_unique<Engine>(config, std::move(owned), tokenizer);
  }
  std::shared_ptr<Recorder> submit(Request request) {
    if (!engine) build();
    auto sink = std::make_shared<Recorder>();
    const auto accepted = engine->submit(std::move(request), sink);
    REQUIRE(accepted.has_value());
    return sink;
  }
  Refusal refusal_of(Request request) {
    if (!engine) build();
    const auto accepted = engine->submit(std::move(request), std::make_shared<Recorder>());
    REQUIRE_FALSE(accepted.has_value());
    return accepted.error();
  }
  void start() {
    if (!engine) build();
    running = true;
    boost::asio::co_spawn(io, engine->run(), [this](const std::exception_ptr& error) {
      running = false;
      if (error) std::rethrow_exception(error);
    });
  }
  // Runs to the end of all requests, and of the loop.
  void finish() {
    if (!running) start();
    engine->stop();
    io.run();
    REQUIRE_FALSE(running);
    CHECK(engine->violations() == std::vector<std::string>{});
    CHECK(engine->snapshot().blocks_held == 0);
  }
  // What a sequence must give: the stub's tokens from the prompt on.
  std::vector<TokenId> expected(std::vector<TokenId> prefix, uint32_t n, uint64_t seed = 0) const {
    std::vector<TokenId> out;
    for (uint32_t i = 0; i < n; ++i) {
      out.push_back(StubRunner::token_after(prefix, seed, stub.vocab_size));
      prefix.push_back(out.back());
    }
    return out;
  }
};

}  // namespace heddle::engine
