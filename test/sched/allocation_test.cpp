#include "allocation_counter.h"
#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

TEST_CASE("plan and commit allocate nothing while sequences decode, blocks fill and hashes enter the cache") {
  Config config = SchedBench::config(256, 4);
  config.max_num_seqs = 32;
  SchedBench bench(config);
  for (int i = 0; i < 32; ++i) bench.add(static_cast<char>('A' + i), 10, 200);
  constexpr uint32_t depth = 2;
  StepPlan plans[depth];
  std::vector<SeqResult> results(32);
  std::vector<Delivered> delivered;
  delivered.reserve(32);
  const auto turn = [&](uint32_t i) {
    REQUIRE(bench.scheduler.plan(plans[i % depth], {}));
    if (i == 0) return;
    for (SeqResult& r : results) r.token = static_cast<TokenId>(i);
    delivered.clear();
    bench.scheduler.commit(plans[(i - 1) % depth], results, delivered);
  };
  for (uint32_t i = 0; i < 4; ++i) turn(i);
  const uint32_t cached_before = bench.scheduler.view().sequences[0].n_confirmed;
  AllocationCounter counter;
  for (uint32_t i = 4; i < 20; ++i) turn(i);
  const uint64_t n_allocations = counter.stop();
  CHECK(n_allocations == 0);
  CHECK(delivered.size() == 32);
  CHECK(bench.scheduler.view().sequences[0].n_confirmed >= cached_before + 3);
}

}  // namespace
}  // namespace heddle::sched
