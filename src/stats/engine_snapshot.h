#pragma once
// Numbers of one engine, read from live state at the moment of a scrape, so that a gauge cannot go stale. Filled by the
// engine on the loop. Counters never fall. submitted = finished_* + rejected + live at every scrape (one-end).
#include <cstdint>

namespace heddle::stats {

enum class SleepState : uint8_t { awake, paused, weights_offloaded, discard_all };

struct EngineSnapshot {
  uint32_t running = 0, waiting = 0, in_flight = 0;  // waiting = deferred + those that wait for room
  uint32_t deferred = 0;         // wait for something else: grammar, image, input, a token in flight
  uint32_t parked_sessions = 0;  // of the deferred: between turns
  SleepState sleep = SleepState::awake;
  uint32_t blocks_total = 0, blocks_held = 0, blocks_cached = 0, blocks_free = 0;  // total = held + cached + free
  uint64_t submitted = 0, rejected = 0, finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0, discarded_tokens = 0, preemptions = 0, steps = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;
  uint64_t forks = 0, copied_blocks = 0, merged_blocks = 0, cache_resets = 0, evicted_sessions = 0;
  uint64_t deadlines_queued = 0, deadlines_running = 0;  // aborts by deadline: before the first plan, and after
  uint64_t dummy_steps = 0;                              // of a lockstep group
};

}  // namespace heddle::stats
