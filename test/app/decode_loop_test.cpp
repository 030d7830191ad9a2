// The allocation counter replaces operator new for the whole binary: this source alone includes it.
#include "app/decode_loop.h"

#include <doctest/doctest.h>

#include "app/bench_vocab.h"
#include "sched/allocation_counter.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace heddle::app {
namespace {

TEST_CASE("a step allocates nothing while sequences decode: plan, commit, detokenise, JSON and event of each token") {
  DecodeLoop loop({.n_sequences = 64, .n_steps = 400, .depth = 2}, make_bench_tokenizer());
  loop.run_to(200);
  const uint64_t bytes_before = loop.n_bytes();
  AllocationCounter counter;
  loop.run_to(400);
  const uint64_t n_allocations = counter.stop();
  REQUIRE(loop.n_running() == 64);
  CHECK(loop.n_bytes() - bytes_before > uint64_t{64} * 199 * 150);  // a chat chunk a token
#ifdef NDEBUG  // debug builds run the validator every turn, which makes copies
  CHECK(n_allocations == 0);
#else
  CHECK(n_allocations > 0);
#endif
}

TEST_CASE("the times of a step add up to the time of the run") {
  DecodeLoop loop({.n_sequences = 8, .n_steps = 60, .depth = 1}, make_bench_tokenizer());
  loop.run_to(10);
  const StepTimes before = loop.times();
  const MonotonicTime begin = Monotonic::now();
  loop.run_to(60);
  const Monotonic::duration elapsed = Monotonic::now() - begin;
  const StepTimes times = loop.times() - before;
  CHECK(times.n_steps == 50);
  CHECK(times.deciding > Monotonic::duration::zero());
  CHECK(times.running > Monotonic::duration::zero());
  CHECK(times.delivering > Monotonic::duration::zero());
  // run_to() ends in the middle of a turn, so one side may have the rest of a turn that the other has not.
  CHECK(times.total() < elapsed + elapsed / 4 + std::chrono::milliseconds(5));
}

TEST_CASE("a device on the real clock is busy for its time a step, and idles between steps at depth 1") {
  constexpr auto step_time = std::chrono::milliseconds(2);
  DecodeLoop loop({.n_sequences = 8, .n_steps = 40, .depth = 1, .step_time = step_time}, make_bench_tokenizer());
  loop.run_to(5);
  const Monotonic::duration busy = loop.device().busy_time(), idle = loop.device().idle_time();
  const MonotonicTime begin = Monotonic::now();
  loop.run_to(40);
  CHECK(Monotonic::now() - begin >= 34 * step_time);
  CHECK(loop.device().busy_time() - busy == 35 * step_time);
  CHECK(loop.device().idle_time() > idle);
}

TEST_CASE("the vocabulary of the benchmarks is what it says: whole characters but for few, and every id has bytes") {
  const auto tokenizer = make_bench_tokenizer();
  REQUIRE(tokenizer->vocab_size() == static_cast<int32_t>(kBenchVocabSize));
  CHECK(tokenizer->end_tokens().empty());
  size_t n_bytes = 0, n_parts = 0;
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string_view bytes = tokenizer->token_bytes(id);
    REQUIRE_FALSE(bytes.empty());
    n_bytes += bytes.size();
    n_parts += text::utf8_valid_prefix(bytes) != bytes.size();
  }
  CHECK(n_bytes > 5 * kBenchVocabSize);
  CHECK(n_bytes < 12 * kBenchVocabSize);
  CHECK(n_parts > 128);
  CHECK(n_parts < kBenchVocabSize / 50);
  const std::string_view text = "the stone trees: 1234 \"x\"\n";
  CHECK(text::decode(tokenizer->vocab(), tokenizer->encode(text, false)) == text);
}

}  // namespace
}  // namespace heddle::app
