// The model-based random test: random worlds of requests, sessions, operators and faults (random_world.h) against the
// stub. The model is a function of each sequence's own tokens (random_model.h): whatever was batched, chunked, cached,
// merged, preempted or voided, each sequence must give exactly those. The validator runs after every step.
//
// HEDDLE_RANDOM_STEPS sets the number of steps, HEDDLE_RANDOM_SEED the seed of the first world; that of a world that
// failed is in the message.
#include <cstdlib>
#include <iostream>
#include <random>

#include "random_world.h"

namespace heddle::engine {
namespace {

using random_test::Tally;
using random_test::World;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSteps = 20'000;
#else
constexpr uint64_t kSteps = 200'000;
#endif
constexpr uint64_t kStepsOfWorld = 400;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// What must have happened, or the test has tested less than it says.
constexpr std::string_view kExpected[] = {
    "stops", "lengths", "aborts", "errors", "refused", "preemptions", "forks", "copied blocks", "merged blocks",
    "prefix hits", "discarded tokens", "more answers than slots",
    // by state
    "aborted while waiting", "aborted while deferred", "aborted while attached", "aborted between chunks",
    "aborted while decoding", "aborted while preempted", "aborted while preempted, in flight", "aborted while parked",
    "aborted at a turn's end", "aborted while held back for a mask", "abort_all",
    // deferral and grammars
    "deferred", "made ready", "failed while deferred", "with a grammar", "samplings held back",
    "tokens outside the grammar",
    // sessions
    "turns", "turns after an answer", "turns given during one", "prompts that grew", "closed between turns",
    "closed during a turn", "closed at a turn's end", "evicted sessions",
    // deadlines
    "deadlines of queued ones", "deadlines of running ones", "given up before their deadline",
    // operations
    "pauses that abort", "pauses that wait", "pauses that keep", "sleeps at level 0", "sleeps at level 1",
    "sleeps at level 2", "wake-ups", "wake-ups that failed", "resets", "resets of running ones", "resets refused",
    "cache resets",
    // faults
    "faults at launch", "faults at wait", "faults at commit", "faults of a sequence", "faults of steps",
    "faults of the device"};

TEST_CASE(
    "random requests, sessions, operations and faults: every sequence gives exactly its tokens, every invariant "
    "holds") {
  const uint64_t n_steps = from_environment("HEDDLE_RANDOM_STEPS", kSteps);
  const uint64_t seed = from_environment("HEDDLE_RANDOM_SEED", std::random_device{}());
  std::cout << fmt::format(
                   "random test: HEDDLE_RANDOM_SEED={} HEDDLE_RANDOM_STEPS={} test_engine "
                   "--test-case='random requests*'",
                   seed, n_steps)
            << std::endl;
  Tally tally;
  for (uint64_t world = 0; tally["steps"] < n_steps; ++world) World(seed + world, kStepsOfWorld, tally).run();
  std::string line = "random test:";
  for (const auto& [what, n] : tally) line += fmt::format(" {} {},", n, what);
  line.back() = '\n';
  std::cout << line;
  if (n_steps < 20'000) return;  // too few for everything to have happened
  for (const std::string_view what : kExpected) {
    CAPTURE(what);
    CHECK(tally[what] > 0);
  }
}

}  // namespace
}  // namespace heddle::engine
