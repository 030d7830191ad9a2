#include "engine/balance.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::engine {

double score(const Candidate& candidate, uint32_t n_clients) {
  const uint64_t load =
      std::max(uint64_t{n_clients} * candidate.own_in_flight, uint64_t{candidate.waiting} + candidate.running);
  return static_cast<double>(load) + candidate.waiting * 6.0 * std::max(0.0, candidate.kv_usage - 0.5);
}

bool is_overloaded(const Candidate& candidate, const Candidate& best) {
  return (candidate.waiting > 0 && best.waiting == 0) || score(candidate) > 1.5 * score(best) + 4;
}

uint32_t choose(std::span<const Candidate> candidates, uint32_t first, std::optional<uint32_t> rank) {
  HEDDLE_CHECK(!candidates.empty());
  const auto n = static_cast<uint32_t>(candidates.size());
  if (rank) {
    HEDDLE_CHECK_OP(*rank, <, n);
    return *rank;
  }
  const bool any_healthy = std::any_of(candidates.begin(), candidates.end(), [](const auto& c) { return c.healthy; });
  const auto scan = [&](auto better, auto allowed) {
    uint32_t found = n;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t at = (first % n + i) % n;
      if (any_healthy && !candidates[at].healthy) continue;
      if (!allowed(candidates[at])) continue;
      if (found == n || better(candidates[at], candidates[found])) found = at;
    }
    return found;
  };
  const auto less_loaded = [](const Candidate& a, const Candidate& b) { return score(a) < score(b); };
  const Candidate& best = candidates[scan(less_loaded, [](const Candidate&) { return true; })];
  return scan(
      [&](const Candidate& a, const Candidate& b) {
        if (a.cached_tokens != b.cached_tokens) return a.cached_tokens > b.cached_tokens;
        return less_loaded(a, b);
      },
      [&](const Candidate& c) { return !is_overloaded(c, best); });
}

}  // namespace heddle::engine
