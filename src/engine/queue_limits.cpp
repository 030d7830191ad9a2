#include "engine/queue_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heddle::engine {
namespace {

constexpr double kLongestWait = 600;

// A request that is too large for an empty queue would come back for ever: its client should know.
std::string alone(bool hopeless) { return hopeless ? "; the request alone is larger than that" : ""; }

}  // namespace

std::optional<QueueRefusal> check_limits(const QueueLimits& limits, std::span<const Load> loads, uint64_t n_sequences,
                                         uint64_t n_tokens) {
  uint64_t n_live = 0, n_queued_tokens = 0;
  for (const Load& load : loads) {
    n_live += uint64_t{load.running} + load.waiting;
    n_queued_tokens += load.queued_tokens;
  }
  const uint64_t max_reqs = limits.max_num_queued_reqs, max_tokens = limits.max_num_queued_tokens;
  if (max_reqs > 0 && n_live + n_sequences > max_reqs)
    return QueueRefusal{QueueLimit::reqs,
                        fmt::format("the server is full: {} sequences wait or run, {} more would exceed "
                                    "--max-num-queued-reqs {}{}",
                                    n_live, n_sequences, max_reqs, alone(n_sequences > max_reqs)),
                        retry_after(loads)};
  if (max_tokens > 0 && n_queued_tokens + n_tokens > max_tokens)
    return QueueRefusal{QueueLimit::tokens,
                        fmt::format("the server is full: {} prompt tokens wait for their first output, {} more would "
                                    "exceed --max-num-queued-tokens {}{}",
                                    n_queued_tokens, n_tokens, max_tokens, alone(n_tokens > max_tokens)),
                        retry_after(loads)};
  return std::nullopt;
}

uint32_t retry_after(std::span<const Load> loads) {
  double prefill = 0;           // rows a second, all engines
  double uncached = 0;          // rows
  double first_end = HUGE_VAL;  // seconds
  for (const Load& load : loads) {
    prefill += load.rates.prefill;
    uncached += static_cast<double>(load.uncached_tokens);
    if (load.soonest_end > 0 && load.rates.decode > 0)
      first_end = std::min(first_end, load.soonest_end / load.rates.decode);
  }
  double wait = prefill > 0 ? uncached / prefill : 0;
  if (first_end < HUGE_VAL) wait += first_end;
  return static_cast<uint32_t>(std::clamp(std::ceil(wait), 1.0, kLongestWait));
}

}  // namespace heddle::engine
