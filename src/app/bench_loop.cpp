// `heddle bench loop`: the host's cost of a step, with everything but the device and the sockets.
#include "app/bench_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/bench_vocab.h"
#include "app/commands.h"
#include "app/decode_loop.h"
#include "app/terminal.h"
#include "base/check.h"

namespace heddle::app {
namespace {

constexpr uint32_t kDefaultDepth = 2;

LoopFigures measure_once(const LoopMeasure& measure, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  DecodeLoop loop({.n_sequences = measure.n_sequences,
                   .n_steps = measure.warmup + measure.steps,
                   .depth = measure.depth,
                   .step_time = measure.step_time},
                  tokenizer);
  loop.run_to(measure.warmup);
  const StepTimes before = loop.times();
  const uint64_t bytes_before = loop.n_bytes();
  const Monotonic::duration busy_before = loop.device().busy_time(), idle_before = loop.device().idle_time();
  loop.run_to(measure.warmup + measure.steps / 2);
  loop.scrape();
  loop.run_to(measure.warmup + measure.steps);
  const StepTimes times = loop.times() - before;
  HEDDLE_CHECK_OP(loop.n_running(), ==, measure.n_sequences);
  const auto a_step = [&](Monotonic::duration d) { return 1e6 * seconds(d) / static_cast<double>(times.n_steps); };
  const double busy = seconds(loop.device().busy_time() - busy_before);
  const double idle = seconds(loop.device().idle_time() - idle_before);
  return {.host_us = a_step(times.total()),
          .plan_commit_us = a_step(times.deciding),
          .output_us = a_step(times.delivering),
          .stub_us = a_step(times.running),
          .bytes_per_event = static_cast<double>(loop.n_bytes() - bytes_before) /
                             static_cast<double>(times.n_steps * measure.n_sequences),
          .device_busy = busy > 0 ? busy / (busy + idle) : 0};
}

void print_pipeline_share(const BenchLoopOptions& options, uint32_t n_sequences,
                          const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const uint32_t first = options.depth > 0 ? options.depth : 1, last = options.depth > 0 ? options.depth : 3;
  for (uint32_t depth = first; depth <= last; ++depth) {
    LoopMeasure measure{n_sequences, depth, options.warmup, options.steps, 1};
    measure.step_time =
        std::chrono::duration_cast<Monotonic::duration>(std::chrono::duration<double, std::milli>(options.device_ms));
    const LoopFigures figures = measure_loop(measure, tokenizer);
    fmt::print("running={} device_ms={:g} depth={} device_busy={:.2f}%\n", n_sequences, options.device_ms, depth,
               1e2 * figures.device_busy);
    std::fflush(stdout);
  }
}

}  // namespace

LoopFigures measure_loop(const LoopMeasure& measure, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  LoopFigures best = measure_once(measure, tokenizer);
  for (uint32_t i = 1; i < measure.repeats; ++i) {
    const LoopFigures figures = measure_once(measure, tokenizer);
    if (figures.host_us < best.host_us) best = figures;
  }
  return best;
}

int bench_loop_command(const BenchLoopOptions& options) {
  const std::shared_ptr<const text::Tokenizer> tokenizer = make_bench_tokenizer();
  if (options.device_ms > 0) {
    for (const uint32_t n_sequences : options.running) print_pipeline_share(options, n_sequences, tokenizer);
    return 0;
  }
  double first_cost = 0;
  for (const uint32_t n_sequences : options.running) {
    const LoopMeasure measure{n_sequences, options.depth > 0 ? options.depth : kDefaultDepth, options.warmup,
                              options.steps, options.repeats};
    const LoopFigures figures = measure_loop(measure, tokenizer);
    fmt::print("running={} host_us={:.1f} plan_commit_us={:.1f} output_us={:.1f}\n", n_sequences, figures.host_us,
               figures.plan_commit_us, figures.output_us);
    const double cost = figures.host_us / n_sequences;
    if (first_cost == 0) first_cost = cost;
    fmt::print("  a sequence: {:.3f} us, {:.2f} of that at {}; stub_us={:.1f} depth={} bytes_per_token={:.0f}\n", cost,
               cost / first_cost, options.running.front(), figures.stub_us, measure.depth, figures.bytes_per_event);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace heddle::app
