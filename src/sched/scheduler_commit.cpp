// Results, ends and faults: how a sequence leaves a step, and the scheduler.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace heddle::sched {

void Scheduler::commit(const StepPlan& plan, std::span<const SeqResult> results, std::vector<Delivered>& delivered) {
  HEDDLE_CHECK_OP(results.size(), ==, plan.seqs.size());
  HEDDLE_CHECK_OP(n_plans_in_flight_, >, 0u);
  --n_plans_in_flight_;
  ++counters_.n_steps;
  const uint64_t newest_launched = next_step_ - 1;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const SeqStep& step = plan.seqs[i];
    Sequence& s = *step.sequence;
    const bool sampled = step.outputs == Outputs::sample;
    const TokenId token = results[i].token;
    --s.n_in_flight;
    s.n_placeholders -= sampled;
    s.blocks.landed(plan.step);
    if (s.state == SequenceState::retiring || s.is_between_turns()) {
      counters_.n_discarded_tokens += sampled;
      if (s.state == SequenceState::retiring) retire_if_landed(s);
      if (s.state == SequenceState::parked) settle_parked(s);
      continue;
    }
    if (s.state == SequenceState::running && !results[i].nan) {
      s.n_committed = step.first_position + step.n_tokens;
      if (s.n_committed / config_.block_size > s.chain.n_confirmed) kv_.share(s, newest_launched);
    }
    if (!s.forks.empty() && sampled) release_forks(s);
    if (step.logits_of != kOwnRow) {  // a fork: its prompt was a look-up that hit in full
      ++counters_.n_forks;
      s.n_cached = s.n_prompt;
      if (config_.enable_prefix_caching) {
        ++counters_.first.requests;
        counters_.first.queries += s.n_prompt;
        counters_.first.hits += s.n_prompt;
      }
    }
    if (!sampled) continue;
    HEDDLE_CHECK((token >= 0) != results[i].nan);
    if (!results[i].nan) s.tokens.push_back(token);
    delivered.push_back({&s, token});
  }
}

void Scheduler::finish(Sequence& s) {
  if (s.is_ended()) return;
  const Deferral deferral = s.deferral;
  if (s.prompt_owner != nullptr) {
    detach(s);
  } else if (s.is_queued()) {
    dequeue(s);
  } else if (s.state == SequenceState::parked) {
    parked_.erase(std::find(parked_.begin(), parked_.end(), &s));
  } else {
    running_.erase(std::find(running_.begin(), running_.end(), &s));
    n_reserved_slots_ -= n_reserved_slots(s);
    leave_slot(s);
  }
  if (!s.forks.empty()) pass_prompt_on(s, deferral);
  s.state = SequenceState::retiring;
  retiring_.push_back(&s);
  retire_if_landed(s);
}

void Scheduler::retire_if_landed(Sequence& s) {
  if (s.n_in_flight > 0) return;
  kv_.release(s);
  s.state = SequenceState::finished;
  retiring_.erase(std::find(retiring_.begin(), retiring_.end(), &s));
  if (config_.policy == PolicyKind::fair) tenants_.leave(s.tenant);
  retired_.push_back(&s);
  ++n_finished_;
}

void Scheduler::leave_slot(Sequence& s) {
  // A slot that the runner was never told of (a fault made it forget) needs no farewell.
  if (!s.needs_join) left_.push_back(s.slot);
  free_slots_.push_back(s.slot);
  s.needs_join = false;
}

void Scheduler::enqueue(Sequence& s, uint64_t n_preemptions) {
  s.key = policy_->key(s, n_preemptions);
  queue_.push(s, line(s));
}

void Scheduler::dequeue(Sequence& s) {
  queue_.remove(s, line(s));
  s.deferral = Deferral::none;
}

// A sequence that has not forked yet leaves its prompt's owner.
void Scheduler::detach(Sequence& fork) {
  Sequence& owner = *fork.prompt_owner;
  const bool running = owner.state == SequenceState::running;
  if (running) n_reserved_slots_ -= n_reserved_slots(owner);
  owner.forks.erase(std::find(owner.forks.begin(), owner.forks.end(), &fork));
  if (running) n_reserved_slots_ += n_reserved_slots(owner);
  fork.prompt_owner = nullptr;
  --n_attached_;
}

// The owner ends before its prompt was forked: the next of them computes it.
void Scheduler::pass_prompt_on(Sequence& owner, Deferral deferral) {
  Sequence& next = *owner.forks.front();
  next.prompt_owner = nullptr;
  --n_attached_;
  next.forks.assign(owner.forks.begin() + 1, owner.forks.end());
  owner.forks.clear();
  for (Sequence* fork : next.forks) fork->prompt_owner = &next;
  next.deferral = deferral;
  enqueue(next, 0);
}

// Forks that found no slot beside their owner: its prompt is in the cache now, and they queue like any other.
void Scheduler::release_forks(Sequence& owner) {
  if (owner.state == SequenceState::running) n_reserved_slots_ -= n_reserved_slots(owner);
  for (Sequence* fork : owner.forks) {
    fork->prompt_owner = nullptr;
    fork->begun = true;
    --n_attached_;
    enqueue(*fork, 0);
  }
  owner.forks.clear();
}

void Scheduler::rollback(const StepPlan& plan) {
  HEDDLE_CHECK_OP(n_plans_in_flight_, >, 0u);
  --n_plans_in_flight_;
  for (const SeqStep& step : plan.seqs) {
    Sequence& s = *step.sequence;
    --s.n_in_flight;
    s.n_placeholders -= step.outputs == Outputs::sample;
    s.blocks.landed(plan.step);
    if (s.state == SequenceState::retiring) retire_if_landed(s);
    if (s.state == SequenceState::parked) settle_parked(s);
    if (s.state != SequenceState::running) continue;
    if (step.logits_of != kOwnRow) {
      take_back_fork(s);
      continue;
    }
    s.n_computed = std::min(s.n_computed, step.first_position);
    // A copy on write that did not happen: the rows that it should have carried over are computed again.
    for (const BlockCopy& copy : plan.copies) {
      const uint32_t written = s.n_computed / config_.block_size;
      if (written < s.blocks.size() && s.blocks[written] == copy.to) s.n_computed = written * config_.block_size;
    }
    s.n_committed = std::min(s.n_committed, s.n_computed);
    kv_.shrink(s, s.n_computed);
  }
}

// A fork of a voided step waits for its prompt like any other sequence.
void Scheduler::take_back_fork(Sequence& fork) {
  running_.erase(std::find(running_.begin(), running_.end(), &fork));
  leave_slot(fork);
  kv_.release(fork);
  fork.n_computed = fork.n_committed = 0;
  fork.state = SequenceState::waiting;
  fork.begun = true;
  enqueue(fork, 0);
}

void Scheduler::forget_slots() {
  HEDDLE_CHECK_OP(n_plans_in_flight_, ==, 0u);
  left_.clear();
  for (Sequence* s : running_) s->needs_join = true;
}

Sequence* Scheduler::stuck_head() const {
  if (pause_ != Pause::none || n_plans_in_flight_ > 0 || !running_.empty() || !parked_.empty()) return nullptr;
  for (uint32_t i = 0; i < queue_.n_lines(); ++i)
    if (Sequence* head = queue_.head(i)) return head;
  return nullptr;
}

}  // namespace heddle::sched
