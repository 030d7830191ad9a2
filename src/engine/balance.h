#pragma once
// Which engine of a group takes a request. Pure functions over a few numbers of each engine. The score is vLLM's
// (contract E.11); on top of it, a request goes where the longest piece of its prompt is already in the KV cache,
// unless that engine is overloaded.
#include <cstdint>
#include <optional>
#include <span>

namespace heddle::engine {

struct Candidate {
  uint32_t own_in_flight = 0;  // sequences that this front end gave it and that have not ended
  uint32_t running = 0, waiting = 0;
  double kv_usage = 0;         // 0 to 1
  uint32_t cached_tokens = 0;  // of the prompt, in whole blocks
  bool healthy = true;
};

// max(n_clients * own_in_flight, waiting + running) + waiting * 6 * max(0, kv_usage - 0.5). What one front end counts
// itself is never late, what engines report may be; a queue weighs more where blocks are short. Smaller is better.
double score(const Candidate& candidate, uint32_t n_clients = 1);

// Whether a prefix is not worth going to `candidate`, seen from the engine with the best score. It is overloaded if
//   - sequences wait there and none waits at the best: recomputing a prefix is work, waiting for room has no bound; or
//   - its score is above 1.5 times the best one's + 4: a prompt that everybody shares would otherwise draw all requests
//     to one engine and leave the others idle. Small numbers (the requests of one session) stay together; for large
//     ones the imbalance that prefixes can cause is bounded, three requests to two.
bool is_overloaded(const Candidate& candidate, const Candidate& best);

// The engine for a request. Among the healthy ones that are not overloaded the longest cached prefix wins, then the
// smallest score, then the first from `first` on, in a circle; `first` is moved on by the caller from choice to choice,
// so that equals take turns. A rank asked for overrides all of it. There is at least one candidate; if none is healthy,
// all are looked at.
uint32_t choose(std::span<const Candidate> candidates, uint32_t first, std::optional<uint32_t> rank = std::nullopt);

}  // namespace heddle::engine
