#pragma once
// Numbers of one engine, read from live state at the moment of a scrape, so that a gauge cannot go stale. Filled by the
// engine on the loop. Counters never fall. submitted = finished_* + rejected + live at every scrape (one-end).
#include <cstdint>

namespace heddle::stats {

struct EngineSnapshot {
  uint32_t running = 0, waiting = 0, in_flight = 0;
  uint32_t blocks_total = 0, blocks_held = 0, blocks_cached = 0, blocks_free = 0;  // total = held + cached + free
  uint64_t submitted = 0, rejected = 0, finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0, discarded_tokens = 0, preemptions = 0, steps = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;
};

}  // namespace heddle::stats
