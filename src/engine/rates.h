#pragma once
// How fast an engine computes, measured: what Retry-After and deadlines are worked out from. Kept by the engine whether
// or not statistics are exported. Loop thread only; a few additions a step.
#include <cstdint>

#include "base/clock.h"

namespace heddle::engine {

// 0: not measured yet.
struct Rates {
  double prefill = 0;  // prompt rows a second
  double decode = 0;   // tokens a second of one sequence
};

// Weighted over about the last ten seconds of device time: older steps fade by half in that time.
class RateMeter {
 public:
  // A committed step: prompt rows, decode rows (one a sequence), device time. A step that is mostly prompt counts for
  // prefill with its whole time, one without prompt rows for decode. A few prompt rows beside decoding, or a short
  // prompt alone, say nothing of how fast a long one goes, since a step's fixed cost weighs most: they are left out.
  void add_step(uint32_t n_prompt_rows, uint32_t n_decode_rows, Monotonic::duration device_time);
  Rates rates() const;

 private:
  double prefill_rows_ = 0, prefill_seconds_ = 0;
  double decode_steps_ = 0, decode_seconds_ = 0;
};

// Seconds until `uncached_tokens` (a sequence's own and those of all before it) are computed at `speed_up` times the
// measured rate; 0 while nothing was measured.
double seconds_to_first_token(const Rates& rates, uint64_t uncached_tokens, double speed_up);

}  // namespace heddle::engine
