#pragma once
// Figures of `heddle bench loop`: what the host does in a step, and how busy it keeps a device.
#include <cstdint>
#include <memory>

#include "app/step_timer.h"
#include "text/tokenizer.h"

namespace heddle::app {

struct LoopMeasure {
  uint32_t n_sequences = 256, depth = 2;
  uint32_t warmup = 200, steps = 2000, repeats = 5;
  Monotonic::duration step_time{};  // of the device; zero: none
};

// A step in microseconds, of the best run (least host_us). The stub computes tokens where a device would compute for
// longer: its work is part of host_us, and of neither part.
struct LoopFigures {
  double host_us = 0;         // all of it: from result to result
  double plan_commit_us = 0;  // result to launch: commit, append the tokens to their requests, plan
  double output_us = 0;       // sample to wait: detokenise, JSON, sinks, reap, one yield of the loop
  double stub_us = 0;
  double bytes_per_event = 0;
  double device_busy = 0;  // share of the device's time, with step_time
};

// Steps 0 to warmup are not counted; there is one scrape of the metrics in each run. No thread, no file.
LoopFigures measure_loop(const LoopMeasure& measure, const std::shared_ptr<const text::Tokenizer>& tokenizer);

}  // namespace heddle::app
