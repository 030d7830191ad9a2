// batch-invariance through the whole engine, on a real model: 24 sequences of mixed requests at once give what each
// gives alone, bit for bit, over pipeline depth, chunk size, prefix cache, tight and ample KV pools, and threads;
// sequence i of a request for several what a request with its seed + i gives. Compared are a hash of the raw logits row
// of every generated position, and the tokens.
#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "cpu/cpu_device.h"
#include "engine/device_runner.h"
#include "engine/engine.h"
#include "reference/cpu_model.h"

using namespace heddle;

namespace {

constexpr uint32_t kRequests = 17;
constexpr uint32_t kSequences = 24;
constexpr uint32_t kMaxLen = 256;

// Hashes of sampled rows, by the order in which sequences were submitted and the index of the generated token.
using Hashes = std::map<std::pair<uint64_t, uint32_t>, uint64_t>;

class RecordingRunner final : public engine::ModelRunner {
 public:
  RecordingRunner(std::unique_ptr<engine::ModelRunner> inner, Hashes& hashes)
      : inner_(std::move(inner)), hashes_(hashes) {}

  engine::Ticket launch(const sched::StepPlan& plan) override {
    const engine::Ticket ticket = inner_->launch(plan);
    std::vector<Row> rows;
    for (const sched::SeqStep& step : plan.seqs)
      rows.push_back({step.id.value, step.token_index, step.outputs == sched::Outputs::sample});
    launched_[ticket.number] = std::move(rows);
    return ticket;
  }
  void sample(engine::Ticket ticket, const engine::SampleArgs& args) override { inner_->sample(ticket, args); }
  boost::asio::awaitable<Result<engine::StepResult, engine::Fault>> wait(engine::Ticket ticket) override {
    Result<engine::StepResult, engine::Fault> result = co_await inner_->wait(ticket);
    if (result) {
      const std::vector<Row>& rows = launched_[ticket.number];
      for (size_t i = 0; i < rows.size(); ++i)
        if (rows[i].sampled) hashes_[{rows[i].id, rows[i].token_index}] = result->seqs[i].logits_hash;
      launched_.erase(ticket.number);
    }
    co_return result;
  }
  uint32_t max_in_flight() const override { return inner_->max_in_flight(); }
  void sleep(engine::SleepLevel level) override { inner_->sleep(level); }
  boost::asio::awaitable<Result<void>> wake_up() override { return inner_->wake_up(); }

 private:
  struct Row {
    uint64_t id;
    uint32_t token_index;
    bool sampled;
  };
  std::unique_ptr<engine::ModelRunner> inner_;
  Hashes& hashes_;
  std::map<uint64_t, std::vector<Row>> launched_;
};

struct Tokens final : engine::OutputSink {
  explicit Tokens(uint32_t n) : tokens(n) {}
  std::vector<std::vector<TokenId>> tokens;  // of each sequence
  bool ended = false;
  void on_delta(const engine::Delta& delta) override {
    auto& of = tokens[delta.index];
    of.insert(of.end(), delta.tokens.begin(), delta.tokens.end());
  }
  void on_end(const engine::Usage&, const engine::Times&) override { ended = true; }
};

// Allows two thirds of the vocabulary, which two depends on the token before.
class Thirds final : public engine::TokenMasker {
 public:
  void fill(std::span<uint32_t> mask) override {
    for (size_t w = 0; w < mask.size(); ++w) {
      mask[w] = 0;
      for (uint32_t bit = 0; bit < 32; ++bit)
        if (allows(static_cast<TokenId>(w * 32 + bit))) mask[w] |= 1u << bit;
    }
  }
  bool accept(TokenId token) override {
    const bool allowed = allows(token);
    last_ = token;
    return allowed;
  }

 private:
  bool allows(TokenId token) const { return (token + last_) % 3 != 0; }
  TokenId last_ = 0;
};

struct Setting {
  uint32_t depth = 1, chunk = 512, threads = 2, n_blocks = 24 * kMaxLen / 16;
  bool cache = false;
};

struct Outcome {
  std::vector<std::vector<TokenId>> tokens;  // [kSequences]
  Hashes hashes;
  uint64_t preemptions = 0, hits = 0, forks = 0;
};

// Prompts of many lengths, some with a common beginning; greedy, seeded, penalised, biased, masked, with stop tokens;
// some for several sequences.
std::vector<engine::Request> mixed_requests(uint32_t vocab) {
  std::mt19937 random(20);
  std::uniform_int_distribution<TokenId> any(20, static_cast<TokenId>(vocab) - 1);
  std::vector<TokenId> common(48);
  for (TokenId& id : common) id = any(random);
  std::vector<engine::Request> requests(kRequests);
  for (uint32_t i = 0; i < kRequests; ++i) {
    engine::Request& r = requests[i];
    r.id = "r" + std::to_string(i);
    if (i % 3 == 0) r.prompt = common;
    for (uint32_t n = 1 + (i * 29) % 97; n > 0; --n) r.prompt.push_back(any(random));
    r.max_tokens = 6 + i % 11;
    r.stop.ignore_eos = true;
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    r.sampling.seed = 100 + i;
    if (i % 4 == 1) r.sampling.top_p = 0.9f;
    if (i % 5 == 2) r.sampling.repetition_penalty = 1.3f;
    if (i % 7 == 3) r.sampling.frequency_penalty = 1.0f;
    if (i % 6 == 4) r.sampling.logit_bias = {{any(random), 3.0f}};
    if (i % 8 == 5) r.stop.token_ids = {any(random), any(random)};
    if (i % 8 == 7) r.make_masker = [] { return std::make_unique<Thirds>(); };
    if (i % 5 == 1) r.n = 2 + i / 5 % 2;  // 1, 6, 11 and 16: two or three
    if (i == 7) r.n = 2;                  // masked
  }
  return requests;
}

// A request for each sequence.
std::vector<engine::Request> one_by_one(const std::vector<engine::Request>& requests) {
  std::vector<engine::Request> solo;
  for (const engine::Request& request : requests) {
    for (uint32_t i = 0; i < request.n; ++i) {
      engine::Request& one = solo.emplace_back(request);
      one.id += "-" + std::to_string(i);
      one.n = 1;
      one.sampling.seed += i;
    }
  }
  return solo;
}

Outcome run(const Setting& setting, bool one_at_a_time) {
  boost::asio::io_context io{1};
  const std::unique_ptr<Loop> loop = make_loop(io);
  cpu::Team team(*loop, {.helpers = setting.threads - 1, .loop_is_member = true});
  const model::GgufSet files = open_model(kSmolLm);
  const auto model_config = model::read_config(files);
  REQUIRE(model_config.has_value());
  auto device = std::make_unique<cpu::CpuDevice>(
      team, cpu::CpuOptions{.isa = cpu::available_isas().back(), .compute = {}, .threads_why = {}});
  auto model = model::load_model(files, *model_config, *device, kMaxLen);
  REQUIRE(model.has_value());
  auto weights =
      std::make_shared<engine::ModelWeights>(io.get_executor(), *loop, std::move(*model), engine::WeightSource{});
  auto runner = std::make_unique<engine::DeviceRunner>(io.get_executor(), std::move(device), std::move(weights),
                                                       engine::DeviceRunnerOptions{.max_num_seqs = kSequences,
                                                                                   .max_num_batched_tokens = 512,
                                                                                   .n_blocks = setting.n_blocks,
                                                                                   .block_size = 16,
                                                                                   .pipeline_depth = setting.depth,
                                                                                   .hash_logits = true});
  engine::Config config;
  config.pipeline_depth = setting.depth;
  config.vocab_size = model_config->vocab_size;
  config.scheduler.max_num_seqs = kSequences;
  config.scheduler.max_num_batched_tokens = 512;
  config.scheduler.max_model_len = kMaxLen;
  config.scheduler.n_blocks = setting.n_blocks;
  config.scheduler.enable_prefix_caching = setting.cache;
  config.scheduler.long_prefill_token_threshold = setting.chunk;
  Outcome outcome;
  engine::Engine engine(config, std::make_unique<RecordingRunner>(std::move(runner), outcome.hashes), nullptr);
  bool running = true;
  boost::asio::co_spawn(io, engine.run(), [&running](const std::exception_ptr& thrown) {
    running = false;
    if (thrown) std::rethrow_exception(thrown);
  });
  const auto run_until = [&io](const auto& done) {
    while (!done()) io.run_one();
  };
  std::vector<std::shared_ptr<Tokens>> sinks;
  std::vector<engine::Request> requests = mixed_requests(model_config->vocab_size);
  if (one_at_a_time) requests = one_by_one(requests);
  for (engine::Request& request : requests) {
    sinks.push_back(std::make_shared<Tokens>(request.n));
    REQUIRE(engine.submit(std::move(request), sinks.back()).has_value());
    if (one_at_a_time) run_until([&] { return sinks.back()->ended; });
    // The first goes ahead, so that those with the same beginning can find it in the cache.
    if (sinks.size() == 1) run_until([&] { return !sinks.back()->tokens.front().empty(); });
  }
  run_until([&] {
    for (const auto& sink : sinks)
      if (!sink->ended) return false;
    return true;
  });
  outcome.preemptions = engine.snapshot().preemptions;
  outcome.hits = engine.snapshot().prefix_hits;
  outcome.forks = engine.snapshot().forks;
  engine.stop();
  run_until([&] { return !running; });
  for (const auto& sink : sinks) outcome.tokens.insert(outcome.tokens.end(), sink->tokens.begin(), sink->tokens.end());
  CHECK(outcome.tokens.size() == kSequences);
  return outcome;
}

}  // namespace

TEST_CASE(
    "24 sequences at once give what each gives alone, whatever the depth, chunk, cache, pool, threads and forks") {
  const Outcome alone = run({}, true);
  REQUIRE(alone.preemptions == 0);
  REQUIRE(alone.forks == 0);
  const uint64_t first_alone = alone.hashes.begin()->first.first;
  const std::map<uint32_t, std::vector<uint32_t>> depths = {
      {1, {1, 3}}, {7, {2, 8}}, {16, {1, 8}}, {48, {2, 3}}, {512, {1, 2}}};
  for (const auto& entry : depths) {
    const uint32_t chunk = entry.first;
    for (const uint32_t depth : entry.second) {
      for (const bool cache : {false, true}) {
        for (const bool tight : {false, true}) {
          for (const uint32_t threads : {1u, 2u}) {
            Setting setting{.depth = depth, .chunk = chunk, .threads = threads, .cache = cache};
            if (tight) setting.n_blocks = 13;  // the longest request takes 11, all together about 140
            CAPTURE(depth);
            CAPTURE(chunk);
            CAPTURE(cache);
            CAPTURE(tight);
            CAPTURE(threads);
            const Outcome together = run(setting, false);
            CHECK(together.tokens == alone.tokens);
            // At a row a step, prompts trickle in no faster than outputs grow, and nobody is in the way of another.
            if (chunk > 1) CHECK((together.preemptions > 0) == tight);
            if (cache) CHECK(together.hits > 0);
            CHECK(together.forks > 0);
            const uint64_t first = together.hashes.begin()->first.first;
            uint32_t n_wrong = 0;
            for (uint32_t i = 0; i < kSequences; ++i) {
              for (uint32_t t = 0; t < alone.tokens[i].size(); ++t)
                n_wrong += together.hashes.at({first + i, t}) != alone.hashes.at({first_alone + i, t});
            }
            CHECK(n_wrong == 0);
          }
        }
      }
    }
  }
}
