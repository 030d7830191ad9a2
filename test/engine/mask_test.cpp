// Token masks: steps in two halves, and masks that are made of exactly what was committed before.
#include "engine_fixture.h"

namespace heddle::engine {
namespace {

constexpr TokenId kVocabulary = 64;

// Allows tokens whose sum with the last accepted one is even; remembers what it was told. Traces as M<tokens accepted>.
struct Parity final : TokenMasker {
  std::shared_ptr<CallTrace> trace;
  std::vector<TokenId>* accepted;
  TokenId forbidden = -1;
  Parity(std::shared_ptr<CallTrace> t, std::vector<TokenId>* a, TokenId f)
      : trace(std::move(t)), accepted(a), forbidden(f) {}
  void fill(std::span<uint32_t> mask) override {
    if (trace) trace->add('M', accepted->size());
    const TokenId last = accepted->empty() ? 0 : accepted->back();
    std::fill(mask.begin(), mask.end(), 0u);
    for (TokenId id = 0; id < kVocabulary; ++id)
      if ((id + last) % 2 == 0) mask[static_cast<size_t>(id) / 32] |= 1u << id % 32;
  }
  bool accept(TokenId token) override {
    accepted->push_back(token);
    return token != forbidden;
  }
};

struct MaskBench : EngineBench {
  std::vector<TokenId> accepted;
  explicit MaskBench(uint32_t depth) : EngineBench(depth) {
    stub.vocab_size = kVocabulary;
    config.vocab_size = kVocabulary;
  }
  Request masked(std::string id, uint32_t max_tokens, TokenId forbidden = -1) {
    Request request = make_request(std::move(id), iota_prompt(4), max_tokens);
    request.make_masker = [this, forbidden] { return std::make_unique<Parity>(trace, &accepted, forbidden); };
    return request;
  }
};

TEST_CASE("launch_sample_split: a masked row's sampling waits for its previous token, while its forward runs") {
  MaskBench bench(2);
  bench.submit(bench.masked("g", 2));
  bench.submit(make_request("h", iota_prompt(5, 20), 2));
  bench.finish();
  CHECK(bench.trace->text("LSWM") == "L0 M0 S0 L1 W0 M1 S1 W1");

  MaskBench plain(2);
  plain.submit(make_request("g", iota_prompt(4), 2));
  plain.submit(make_request("h", iota_prompt(5, 20), 2));
  plain.finish();
  CHECK(plain.trace->text("LSWM") == "L0 S0 L1 S1 W0 W1");
}

TEST_CASE("launch_sample_split: while a sampling is held back nothing more is launched, at any depth") {
  MaskBench bench(4);
  bench.submit(bench.masked("g", 4));
  bench.finish();
  CHECK(bench.trace->text("LSWM") == "L0 M0 S0 L1 W0 M1 S1 L2 W1 M2 S2 L3 W2 M3 S3 W3");
}

TEST_CASE("launch_sample_split: a chunk of a prompt never samples, and asks for no mask") {
  MaskBench bench(2);
  bench.config.scheduler.max_num_seqs = 2;
  bench.config.scheduler.max_num_batched_tokens = 3;
  bench.submit(bench.masked("g", 1));
  bench.finish();
  CHECK(bench.trace->text("LSWM") == "L0 S0 L1 M0 S1 W0 W1");
}

TEST_CASE("a masked sequence gets allowed tokens only, the same at every depth, and each is accepted once") {
  std::vector<TokenId> first;
  for (const uint32_t depth : {1u, 2u, 3u, 8u}) {
    CAPTURE(depth);
    MaskBench bench(depth);
    const auto sink = bench.submit(bench.masked("g", 12));
    bench.submit(make_request("h", iota_prompt(5, 20), 30));
    bench.finish();
    const std::vector<TokenId>& tokens = sink->only().tokens;
    CHECK(tokens.size() == 12);
    CHECK(tokens == bench.accepted);
    for (const TokenId token : tokens) CHECK(token % 2 == 0);
    if (first.empty()) first = tokens;
    CHECK(tokens == first);
  }
}

TEST_CASE("a token that the grammar does not accept ends the sequence with error, and the other goes on") {
  MaskBench bench(2);
  const auto probe = bench.submit(bench.masked("probe", 3));
  bench.finish();
  const TokenId third = probe->only().tokens[2];

  MaskBench other(2);
  const auto sink = other.submit(other.masked("g", 12, third));
  const auto plain = other.submit(make_request("h", iota_prompt(5, 20), 8));
  other.finish();
  CHECK(sink->reason() == FinishReason::error);
  CHECK(sink->only().finish->message.find("token 2 of the output") != std::string::npos);
  CHECK(plain->reason() == FinishReason::length);
}

TEST_CASE("an abort between launch and sampling drops the row: one end, reason abort, blocks free after that step") {
  MaskBench bench(2);
  const auto sink = bench.submit(bench.masked("g", 12));
  sink->also = [&](const Delta& delta) {
    // The second step is launched and held back at this moment.
    if (delta.tokens.size() == 1 && !delta.finish) bench.engine->abort("g");
  };
  bench.finish();
  CHECK(sink->reason() == FinishReason::abort);
  CHECK(sink->n_ends == 1);
  CHECK(sink->only().tokens.size() == 1);
  CHECK(bench.trace->text("LSW") == "L0 S0 L1 W0 S1 L2 W1 S2 W2");
}

}  // namespace
}  // namespace heddle::engine
