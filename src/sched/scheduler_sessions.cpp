// Sessions, whose turns follow each other in one KV, and an operator's operations.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace heddle::sched {

void Scheduler::extend(Sequence& s, std::span<const TokenId> tokens, uint32_t n_limit) {
  HEDDLE_CHECK(s.state == SequenceState::waiting && s.prompt_owner == nullptr && s.forks.empty());
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  s.n_prompt = s.n_known();
  s.n_limit = n_limit;
  HEDDLE_CHECK_OP(s.n_prompt, <, s.n_limit);
}

void Scheduler::end_turn(Sequence& s) {
  HEDDLE_CHECK(s.forks.empty() && s.prompt_owner == nullptr);
  HEDDLE_CHECK_OP(s.n_generated(), >, 0u);
  s.tokens.pop_back();
  s.n_prompt = s.n_known();
  const size_t n_hashed = s.n_known() / config_.block_size;
  if (s.chain.hashes.size() > n_hashed) s.chain.hashes.resize(n_hashed);
  if (s.state == SequenceState::preempted) {  // its last token came while it had no blocks
    queue_.defer(s, line(s), Deferral::input);
    return;
  }
  HEDDLE_CHECK(s.state == SequenceState::running);
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  leave_slot(s);
  s.state = SequenceState::parked;
  parked_.push_back(&s);
  settle_parked(s);
}

void Scheduler::settle_parked(Sequence& s) {
  if (s.n_in_flight > 0) return;
  s.n_computed = s.n_committed;
  kv_.shrink(s, s.n_computed);
}

bool Scheduler::can_continue(const Sequence& s) const { return s.n_in_flight == 0 && s.is_between_turns(); }

void Scheduler::continue_turn(Sequence& s, std::span<const TokenId> tokens, uint32_t n_limit) {
  HEDDLE_CHECK(can_continue(s));
  s.tokens.reserve(n_limit);
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  s.n_prompt = s.n_known();
  s.n_limit = n_limit;
  HEDDLE_CHECK_OP(s.n_prompt, <, s.n_limit);
  s.scheduled = {};
  s.n_cached = s.n_committed;
  if (s.state == SequenceState::preempted) {
    s.begun = false;
    return defer(s, Deferral::none);
  }
  s.blocks.reserve(kv_.blocks_for_positions(n_limit));
  s.chain.hashes.reserve(n_limit / config_.block_size);
  parked_.erase(std::find(parked_.begin(), parked_.end(), &s));
  s.state = SequenceState::running;
  s.slot = free_slots_.back();  // one of the free slots is held by each parked session
  free_slots_.pop_back();
  s.needs_join = true;
  running_.push_back(&s);
}

void Scheduler::preempt_all() {
  while (!running_.empty()) preempt(nullptr, *running_.back());
  while (evict_session()) {
  }
}

bool Scheduler::reset_prefix_cache() {
  const bool done = kv_.reset();
  counters_.n_cache_resets += done;
  return done;
}

}  // namespace heddle::sched
