#include "engine/device_runner.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "model/config.h"
#include "model/goldens.h"
#include "model/naive_device.h"

namespace heddle::engine {
namespace {

void rethrow(const std::exception_ptr& thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

using sched::Outputs;
using sched::SeqStep;
using sched::StepPlan;
using sched::TokenSource;

// A tiny llama on the naive device behind a runner, and plans for it by hand.
struct Fixture {
  boost::asio::io_context io;
  std::unique_ptr<Loop> loop = make_loop(io);
  std::shared_ptr<ModelWeights> weights;
  NaiveDevice* device = nullptr;
  std::unique_ptr<DeviceRunner> runner;
  std::vector<BlockId> blocks[4];
  device::SlotSampling sampling{.temperature = 0.0f};

  explicit Fixture(uint32_t depth = 1, uint32_t all_logits_rows = 0) {
    const auto files = model::GgufSet::open(HEDDLE_SOURCE_DIR "/test/data/model/tiny_llama.gguf");
    REQUIRE(files.has_value());
    auto naive = std::make_unique<NaiveDevice>();
    device = naive.get();
    const auto config = model::read_config(*files);
    REQUIRE(config.has_value());
    auto loaded = model::load_model(*files, *config, *naive, 64);
    REQUIRE(loaded.has_value());
    weights = std::make_shared<ModelWeights>(io.get_executor(), *loop, std::move(*loaded), WeightSource{});
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

const std::vector<TokenId> kPrompt = {5, 15, 39, 77, 33, 3};

TEST_CASE("a prompt of 6 tokens makes rows 6 and head rows 1; a chunk that does not finish it makes head rows 0") {
  Fixture f;
  StepPlan whole;
  f.join(whole, 0);
  f.add(whole, f.host(0, kPrompt, 0, Outputs::sample));
  const auto results = f.wait(f.go(whole));
  CHECK(f.count("embed [6, 32]") == 1);
  CHECK(f.count("output.weight [1, 96]") == 1);
  CHECK(f.count("sample [1, 96]") == 1);
  CHECK(results[0].token >= 0);

  f.device->trace.clear();
  StepPlan chunk;
  f.join(chunk, 1);
  f.add(chunk, f.host(1, std::span(kPrompt).first(4), 0, Outputs::none));
  const auto none = f.wait(f.go(chunk));
  CHECK(none.size() == 1);
  CHECK(none[0].token == -1);
  CHECK(!none[0].nan);
  for (const std::string& op : f.device->trace) {
    CHECK(!op.starts_with("output.weight"));
    CHECK(!op.starts_with("sample"));
  }
}

TEST_CASE("a token of the device feeds the next step, the same as if the host had sent it") {
  Fixture f;
  StepPlan prompt;
  f.join(prompt, 2);
  f.add(prompt, f.host(2, kPrompt, 0, Outputs::sample));
  const SeqResult first = f.wait(f.go(prompt))[0];
  StepPlan from_slot;
  f.add(from_slot, f.next(2, 6, 1));
  const SeqResult second = f.wait(f.go(from_slot))[0];

  StepPlan from_host;
  f.join(from_host, 3);
  std::vector<TokenId> both = kPrompt;
  both.push_back(first.token);
  f.add(from_host, f.host(3, both, 0, Outputs::sample, 1));
  const SeqResult again = f.wait(f.go(from_host))[0];
  CHECK(again.token == second.token);
  CHECK(again.logits_hash == second.logits_hash);
  CHECK(again.logits_hash != first.logits_hash);
}

TEST_CASE("results come in the plan's order, whatever each sequence asked for") {
  Fixture f;
  StepPlan alone;
  f.join(alone, 0);
  f.add(alone, f.host(0, kPrompt, 0, Outputs::sample));
  const SeqResult expected = f.wait(f.go(alone))[0];

  StepPlan mixed;
  mixed.left.push_back(SlotId{0});
  for (const uint32_t slot : {0u, 1u, 2u}) f.join(mixed, slot);
  f.add(mixed, f.host(1, std::span(kPrompt).first(3), 0, Outputs::none));
  f.add(mixed, f.host(0, kPrompt, 0, Outputs::sample));
  f.add(mixed, f.host(2, std::span(kPrompt).last(2), 0, Outputs::sample));
  const auto results = f.wait(f.go(mixed));
  CHECK(results[0].token == -1);
  CHECK(results[0].logits_hash == 0);
  CHECK(results[1].token == expected.token);
  CHECK(results[1].logits_hash == expected.logits_hash);
  CHECK(results[2].token >= 0);
  CHECK(results[2].logits_hash != expected.logits_hash);
}

TEST_CASE("slots leave before others join, so one may change hands in a plan") {
  Fixture f;
  StepPlan first;
  f.join(first, 0);
  f.add(first, f.host(0, kPrompt, 0, Outputs::sample));
  f.wait(f.go(first));
  f.device->trace.clear();
  StepPlan second;
  second.left.push_back(SlotId{0});
  second.joined.push_back({SlotId{0}, &f.sampling, kPrompt, std::span(kPrompt).first(2)});
  f.add(second, f.host(0, kPrompt, 0, Outputs::sample));
  f.wait(f.go(second));
  CHECK(f.device->trace[0] == "leave 0");
  CHECK(f.device->trace[1] == "join 0: 6+2");
}

TEST_CASE("two steps in flight are waited for in order, each with its own result") {
  Fixture f(2);
  CHECK(f.runner->max_in_flight() == 2);
  f.device->defer = true;
  StepPlan prompt, decode, third;
  f.join(prompt, 0);
  f.add(prompt, f.host(0, kPrompt, 0, Outputs::sample));
  const Ticket a = f.go(prompt);
  f.add(decode, f.next(0, 6, 1));
  const Ticket b = f.go(decode);
  CHECK(a.number == 0);
  CHECK(b.number == 1);

  std::vector<SeqResult> results;
  bool done = false;
  boost::asio::co_spawn(f.io, f.wait_into(a, results, done), rethrow);
  f.io.poll();
  CHECK(!done);  // the device has not said so
  f.device->run_done();
  f.io.restart();
  f.io.poll();
  CHECK(done);
  const SeqResult first = results[0];
  f.device->defer = false;
  f.add(third, f.next(0, 7, 2));
  const Ticket c = f.go(third);
  const SeqResult second = f.wait(b)[0];
  const SeqResult last = f.wait(c)[0];
  CHECK(second.logits_hash != first.logits_hash);

  Fixture one;
  StepPlan again, decode_again;
  one.join(again, 0);
  one.add(again, one.host(0, kPrompt, 0, Outputs::sample));
  CHECK(one.wait(one.go(again))[0].logits_hash == first.logits_hash);
  one.add(decode_again, one.next(0, 6, 1));
  CHECK(one.wait(one.go(decode_again))[0].logits_hash == second.logits_hash);
  CHECK(last.token >= 0);
}

TEST_CASE("a row with a NaN says so and brings no token") {
  Fixture f;
  f.device->poison_logits = true;
  StepPlan plan;
  f.join(plan, 0);
  f.add(plan, f.host(0, kPrompt, 0, Outputs::sample));
  const auto results = f.wait(f.go(plan));
  CHECK(results[0].nan);
  CHECK(results[0].token == -1);
}

TEST_CASE("all logits of a sequence can be had, beside sampled rows of another") {
  Fixture f(1, 16);
  StepPlan plan;
  f.join(plan, 0);
  f.join(plan, 1);
  f.add(plan, f.host(0, kPrompt, 0, Outputs::all_logits));
  f.add(plan, f.host(1, kPrompt, 0, Outputs::sample));
  const Ticket ticket = f.go(plan);
  const auto results = f.wait(ticket);
  const std::span<const float> logits = f.runner->logits(ticket);
  REQUIRE(logits.size() == 7 * 96);
  CHECK(results[0].token == -1);
  CHECK(hash_row(logits.subspan(5 * 96, 96)) == results[1].logits_hash);
  CHECK(hash_row(logits.subspan(6 * 96, 96)) == results[1].logits_hash);
  CHECK(hash_row(logits.subspan(4 * 96, 96)) != results[1].logits_hash);
}

TEST_CASE("the hash of a row changes with any bit of it, and with its length") {
  std::vector<float> row(100, 1.0f);
  const uint64_t hash = hash_row(row);
  CHECK(hash_row(std::span(row).first(99)) != hash);
  for (size_t i = 0; i < row.size(); ++i) {
    std::vector<float> changed = row;
    changed[i] = std::nextafter(1.0f, 2.0f);
    CHECK(hash_row(changed) != hash);
  }
  row[3] = 0.0f;
  const uint64_t zero = hash_row(row);
  row[3] = -0.0f;
  CHECK(hash_row(row) != zero);
}

}  // namespace
}  // namespace heddle::engine
