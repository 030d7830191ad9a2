#include "app/memory_plan.h"

#include <doctest/doctest.h>

namespace heddle::app {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

MemoryRequest request(uint32_t n_engines) {
  MemoryRequest r;
  r.weights = 100 * kMiB;
  r.kv_per_token = 1024;
  r.activations = 10 * kMiB;
  r.n_engines = n_engines;
  r.model_context = 4096;
  r.max_num_seqs = 64;
  r.block_size = 16;
  return r;
}

MemoryPlan plan(const MemoryRequest& r, const MemoryLimit& limit) {
  auto made = plan_memory(r, limit);
  REQUIRE_MESSAGE(made.has_value(), made.error().message);
  return *made;
}

}  // namespace

TEST_CASE("engines share the weights, and each has a KV cache and activations of its own") {
  const MemoryLimit none{};
  const MemoryPlan one = plan(request(1), none), three = plan(request(3), none);
  CHECK(one.n_blocks == 64 * 4096 / 16);
  CHECK(three.n_blocks == one.n_blocks);
  CHECK(three.weights == one.weights);
  CHECK(three.kv == 3 * one.kv);
  CHECK(three.activations == 3 * one.activations);
  CHECK(three.total() == one.weights + 3 * (one.kv + one.activations));
  CHECK(three.describe().find("3 engines x 16384 blocks") != std::string::npos);
  CHECK(one.describe().find("engine") == std::string::npos);
}

TEST_CASE("what is asked for by flag is for each engine; half of the memory is divided among them") {
  const MemoryLimit limit{400 * kMiB, "a test"};
  MemoryRequest r = request(2);
  r.num_blocks = 100;
  CHECK(plan(r, limit).n_blocks == 100);
  CHECK(plan(r, limit).kv == 2 * 100 * 16 * 1024);
  r.num_blocks.reset();
  r.kv_cache_memory_bytes = 16 * kMiB;
  CHECK(plan(r, limit).n_blocks == 1024);
  CHECK(plan(r, limit).kv == 32 * kMiB);
  r.kv_cache_memory_bytes.reset();
  CHECK(plan(r, limit).kv == 200 * kMiB);
  CHECK(plan(r, limit).n_blocks == 100 * kMiB / 16384);
  CHECK(plan(r, limit).why == "half of the memory among 2 engines");
}

TEST_CASE("a plan that does not fit names the flag, with room counted for each engine") {
  MemoryRequest r = request(4);
  r.kv_cache_memory_bytes = 60 * kMiB;
  const auto refused = plan_memory(r, {300 * kMiB, "a test"});
  REQUIRE(!refused.has_value());
  // 300 - 100 - 4 * 10 = 160 for four.
  CHECK(
      refused.error().message.find("lower --kv-cache-memory-bytes so that the KV cache takes at most 40.0 MiB in each "
                                   "engine") != std::string::npos);
  r.weights = 290 * kMiB;
  const auto hopeless = plan_memory(r, {300 * kMiB, "a test"});
  REQUIRE(!hopeless.has_value());
  CHECK(hopeless.error().message.find("or --data-parallel-size") != std::string::npos);
}

}  // namespace heddle::app
