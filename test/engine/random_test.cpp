// A model-based test: random requests, aborts at every state, faults and pools that are too small, against the stub.
// The model is the prefix function itself: whatever was batched, chunked, cached, preempted or voided, each sequence
// must give exactly the tokens that its prompt and seed determine. The scheduler's validator runs after every turn.
//
// HEDDLE_RANDOM_STEPS sets the number of steps (default 20,000), HEDDLE_RANDOM_SEED the seed, which is printed.
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "engine_fixture.h"

namespace heddle::engine {
namespace {

constexpr TokenId kVocabulary = 50;  // small, so that end tokens and equal prefixes come often

struct Expectation {
  std::vector<TokenId> tokens;  // of a run to the end
  Finish finish;
};

// The answer by the book: the stub's token function and the rules of finish.h, one sequence at a time.
Expectation alone(const Request& request, uint32_t index, TokenId primary_eos, const sched::Config& config) {
  Expectation out;
  std::vector<TokenId> prefix = request.prompt;
  const auto in = [](const std::vector<TokenId>& ids, TokenId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const uint32_t pool = config.n_blocks * config.block_size;
  for (;;) {
    TokenId token = StubRunner::token_after(prefix, request.sampling.seed + index, kVocabulary);
    while (out.tokens.size() < request.sampling.min_tokens && in(request.sampling.end_tokens, token))
      token = (token + 1) % kVocabulary;
    out.tokens.push_back(token);
    prefix.push_back(token);
    if (token == primary_eos && !request.stop.ignore_eos) return out;
    if (in(request.stop.token_ids, token) || (!request.stop.ignore_eos && in(request.sampling.end_tokens, token))) {
      out.finish.stop_token = token;
      return out;
    }
    if (out.tokens.size() == request.max_tokens || prefix.size() == pool + 1) {
      out.finish.reason = FinishReason::length;
      return out;
    }
  }
}

struct World {
  uint64_t seed;
  std::mt19937_64 random{seed};
  EngineBench bench;
  struct Asked {
    Request request;
    std::shared_ptr<Recorder> sink;
    bool aborted = false;
  };
  std::vector<Asked> asked;
  uint64_t n_steps_wanted = 0;
  int n_faults = 0;

  uint32_t upto(uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }

  World(uint64_t s, uint64_t n_steps) : seed(s), bench(1 + static_cast<uint32_t>(s % 4)), n_steps_wanted(n_steps) {
    sched::Config& c = bench.config.scheduler;
    c.block_size = 1 + upto(7);
    c.n_blocks = 3 + upto(40);
    c.max_num_seqs = 1 + upto(7);
    c.max_num_batched_tokens = c.max_num_seqs + upto(30);
    c.max_model_len = 20 + upto(200);
    c.enable_prefix_caching = chance(0.7);
    if (chance(0.3)) c.long_prefill_token_threshold = 1 + upto(10);
    if (chance(0.2)) {
      c.enable_chunked_prefill = false;
      c.max_num_batched_tokens = c.max_model_len + upto(30);
    }
    bench.config.primary_eos = 0;
    bench.config.vocab_size = kVocabulary;
    bench.stub.vocab_size = kVocabulary;
    bench.stub.late = chance(0.7);
    if (chance(0.5)) bench.stub.fault = [this](const sched::StepPlan& plan) { return maybe_fault(plan); };
  }

  std::optional<Fault> maybe_fault(const sched::StepPlan& plan) {
    if (!chance(0.01)) return std::nullopt;
    ++n_faults;
    const SeqId guilty = plan.seqs[upto(static_cast<uint32_t>(plan.seqs.size()) - 1)].id;
    return Fault{{}, "injected", chance(0.8) ? Fault::Scope::sequence : Fault::Scope::steps, guilty};
  }

  Request invent() {
    const sched::Config& c = bench.config.scheduler;
    const uint32_t most = std::min(c.max_model_len - 1, c.n_blocks * c.block_size);
    const uint32_t n_prompt = 1 + upto(std::min(most, chance(0.2) ? most : 20u) - 1);
    Request request = make_request(fmt::format("r{}", asked.size()), {}, 1);
    // Prompts come from few families, so that prefixes meet.
    const auto family = static_cast<TokenId>(upto(2));
    for (uint32_t i = 0; i < n_prompt; ++i) request.prompt.push_back((family + static_cast<TokenId>(i)) % kVocabulary);
    if (chance(0.5)) request.prompt.back() = static_cast<TokenId>(upto(kVocabulary - 1));
    if (!asked.empty() && chance(0.3)) {  // the next turn of an earlier chat
      const Asked& before = asked[upto(static_cast<uint32_t>(asked.size()) - 1)];
      if (before.sink->choices.contains(0)) {
        std::vector<TokenId> turn = before.request.prompt;
        const std::vector<TokenId>& answer = before.sink->choices.at(0).tokens;
        turn.insert(turn.end(), answer.begin(), answer.end());
        if (turn.size() <= most) request.prompt = std::move(turn);
      }
    }
    request.max_tokens = 1 + upto(c.max_model_len - static_cast<uint32_t>(request.prompt.size()) - 1);
    request.n = chance(0.2) ? 1 + upto(2) : 1;
    request.sampling.seed = upto(2);
    request.cache_salt = chance(0.3) ? "salt" : "";
    request.sampling.end_tokens = {0, 1};
    request.stop.ignore_eos = chance(0.5);
    if (chance(0.3)) request.stop.token_ids = {static_cast<TokenId>(upto(kVocabulary - 1))};
    if (chance(0.3)) request.sampling.min_tokens = upto(10);
    return request;
  }

  void act() {
    const auto n_live = std::count_if(asked.begin(), asked.end(), [](const Asked& a) { return a.sink->n_ends == 0; });
    if (n_live < 12 && chance(0.5)) {
      Request request = invent();
      auto sink = std::make_shared<Recorder>();
      const auto accepted = bench.engine->submit(request, sink);
      REQUIRE_MESSAGE(accepted.has_value(), accepted.error().message);
      asked.push_back({std::move(request), std::move(sink)});
    }
    if (!asked.empty() && chance(0.08)) {
      Asked& victim = asked[asked.size() - 1 - upto(std::min<uint32_t>(11, static_cast<uint32_t>(asked.size()) - 1))];
      victim.aborted |= victim.sink->n_ends == 0;
      bench.engine->abort(victim.request.id);
    }
  }

  boost::asio::awaitable<void> drive() {
    for (uint64_t turn = 0; bench.engine->snapshot().steps < n_steps_wanted && turn < 20 * n_steps_wanted; ++turn) {
      act();
      for (uint32_t i = upto(4); i > 0; --i) co_await boost::asio::post(boost::asio::use_awaitable);
      const auto lines = bench.engine->violations();
      REQUIRE_MESSAGE(lines.empty(), lines.front());
    }
    bench.engine->stop();
  }

  void check_answers() {
    for (const Asked& a : asked) {
      CAPTURE(a.request.id);
      REQUIRE(a.sink->n_ends == 1);
      REQUIRE(a.sink->choices.size() == a.request.n);
      uint32_t n_generated = 0;
      for (const auto& [index, choice] : a.sink->choices) {
        const Expectation expected = alone(a.request, index, 0, bench.config.scheduler);
        n_generated += static_cast<uint32_t>(choice.tokens.size());
        const FinishReason reason = choice.finish->reason;
        if (reason == FinishReason::abort || reason == FinishReason::error) {
          REQUIRE((a.aborted || reason == FinishReason::error));
          REQUIRE((n_faults > 0 || reason == FinishReason::abort));
          REQUIRE(choice.tokens.size() <= expected.tokens.size());
          REQUIRE(std::equal(choice.tokens.begin(), choice.tokens.end(), expected.tokens.begin()));
          continue;
        }
        REQUIRE(choice.tokens == expected.tokens);
        REQUIRE(reason == expected.finish.reason);
        REQUIRE(choice.finish->stop_token == expected.finish.stop_token);
      }
      REQUIRE(a.sink->usage.n_generated == n_generated);
      REQUIRE(a.sink->usage.n_prompt == a.request.prompt.size());
    }
  }

  void run() {
    CAPTURE(seed);
    bench.start();
    boost::asio::co_spawn(bench.io, drive(), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
    bench.io.run();
    REQUIRE_FALSE(bench.running);
    check_answers();
    const Snapshot s = bench.engine->snapshot();
    REQUIRE(s.blocks_held == 0);
    REQUIRE(s.submitted == s.rejected + s.finished_stop + s.finished_length + s.finished_abort + s.finished_error);
  }
};

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST_CASE(
    "random requests, aborts, faults and tight pools: every sequence gives exactly its tokens, every invariant holds") {
  const uint64_t n_steps = from_environment("HEDDLE_RANDOM_STEPS", 20'000);
  const uint64_t seed = from_environment("HEDDLE_RANDOM_SEED", std::random_device{}());
  std::cout << "random test: HEDDLE_RANDOM_SEED=" << seed << std::endl;
  Snapshot sum;
  int n_faults = 0;
  for (uint64_t world = 0; sum.steps < n_steps; ++world) {
    World w(seed + world, 500);
    w.run();
    const Snapshot s = w.bench.engine->snapshot();
    sum.steps += s.steps;
    sum.preemptions += s.preemptions;
    sum.discarded_tokens += s.discarded_tokens;
    sum.prefix_hits += s.prefix_hits;
    sum.finished_abort += s.finished_abort;
    sum.finished_stop += s.finished_stop;
    sum.finished_length += s.finished_length;
    n_faults += w.n_faults;
  }
  std::cout << fmt::format(
      "random test: {} steps, {} preemptions, {} discarded, {} prefix hits, {} aborts, {} stops, {} lengths, {} "
      "faults\n",
      sum.steps, sum.preemptions, sum.discarded_tokens, sum.prefix_hits, sum.finished_abort, sum.finished_stop,
      sum.finished_length, n_faults);
  // The test tested something: each of these happened.
  CHECK(sum.preemptions > 0);
  CHECK(sum.discarded_tokens > 0);
  CHECK(sum.prefix_hits > 0);
  CHECK(sum.finished_abort > 0);
  CHECK(sum.finished_stop > 0);
  CHECK(sum.finished_length > 0);
  CHECK(n_faults > 0);
}

}  // namespace
}  // namespace heddle::engine
