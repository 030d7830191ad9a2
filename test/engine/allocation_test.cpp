// The allocation counter replaces operator new for the whole binary: this source alone includes it.
#include "sched/allocation_counter.h"

#include <boost/asio/post.hpp>

#include "byte_tokenizer.h"
#include "engine_fixture.h"

namespace heddle::engine {
namespace {

// Looks at nothing, so that it allocates nothing.
struct Silent final : OutputSink {
  uint64_t n_tokens = 0;
  void on_delta(const Delta& delta) override { n_tokens += delta.tokens.size(); }
  void on_end(const Usage&, const Times&) override {}
};

TEST_CASE("a turn of the loop allocates nothing while sequences decode: plan, launch, commit, detokenise, flush") {
  EngineBench bench(2, 512);
  bench.config.scheduler.max_num_seqs = 32;
  bench.tokenizer = byte_tokenizer();
  bench.stub.vocab_size = 200;
  bench.stub.read_back = false;
  bench.traced = false;
  bench.build();
  const auto sink = std::make_shared<Silent>();
  for (int i = 0; i < 32; ++i) {
    Request request = make_request(fmt::format("{}", i), iota_prompt(10), 400);
    if (i % 2 == 0) request.stop.strings = {"zzz"};
    request.sampling.seed = static_cast<uint64_t>(i);
    REQUIRE(bench.engine->submit(std::move(request), sink).has_value());
  }
  bench.start();
  const auto run_to_step = [&](uint64_t step) {
    while (bench.engine->snapshot().steps < step) bench.io.poll_one();
  };
  run_to_step(100);
  const uint64_t n_tokens = sink->n_tokens;
  // The coroutine's own frames (wait, post) are Asio's, which recycles them: what is counted beyond zero would be ours.
  AllocationCounter counter;
  run_to_step(200);
  const uint64_t n_allocations = counter.stop();
  CHECK(sink->n_tokens - n_tokens >= 31 * 99);
#ifdef NDEBUG  // debug builds run the validator every turn, which makes copies
  CHECK(n_allocations == 0);
#else
  CHECK(n_allocations > 0);
#endif
  bench.engine->abort_all();
  bench.finish();
}

}  // namespace
}  // namespace heddle::engine
