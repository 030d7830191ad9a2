#pragma once
// Whether there is room at the door: limits over all engines of a group, and when a refused client should come back.
// Pure functions. A limit of 0 is none.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"

namespace heddle::engine {

struct QueueLimits {
  uint32_t max_num_queued_reqs = 0;    // sequences that wait or run (a request of n counts n)
  uint64_t max_num_queued_tokens = 0;  // prompt tokens of sequences without a first token
};

enum class QueueLimit : uint8_t { reqs, tokens };

struct QueueRefusal {
  QueueLimit limit = QueueLimit::reqs;
  std::string message;
  uint32_t retry_after = 1;  // seconds
};

// For `n_sequences` new ones with n_tokens prompt tokens in all.
std::optional<QueueRefusal> check_limits(const QueueLimits& limits, std::span<const Load> loads, uint64_t n_sequences,
                                         uint64_t n_tokens);

// Seconds, 1 ... 600: the queue's uncached tokens at the measured prefill rates of the engines together, and the time
// until the first running sequence must have ended at the measured decode rate. Without measurements: 1.
uint32_t retry_after(std::span<const Load> loads);

}  // namespace heddle::engine
