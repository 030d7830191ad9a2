#include "sched/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "sched/admission.h"

namespace heddle::sched {

Scheduler::Scheduler(Config config, BlockHash hash) : config_(std::move(config)), kv_(config_, hash) {
  const Result<void> valid = validate(config_);
  if (!valid) check_failed(__FILE__, __LINE__, "valid configuration", valid.error().message);
  running_.reserve(config_.max_num_seqs);
  retiring_.reserve(config_.max_num_seqs);
  retired_.reserve(config_.max_num_seqs);
  left_.reserve(config_.max_num_seqs);
  candidates_.reserve(config_.max_num_seqs);
  free_slots_.reserve(config_.max_num_seqs);
  for (uint32_t i = config_.max_num_seqs; i > 0; --i) free_slots_.emplace_back(i - 1);  // slot 0 is given first
}

Scheduler::~Scheduler() = default;

void Scheduler::add(Sequence& s) {
  HEDDLE_CHECK(s.state == SequenceState::waiting && s.n_computed == 0);
  HEDDLE_CHECK_OP(s.n_prompt, ==, s.tokens.size());
  HEDDLE_CHECK_OP(s.n_prompt, <, s.n_limit);
  waiting_.push_back(s);
  ++n_added_;
}

bool Scheduler::plan(StepPlan& plan, MonotonicTime now) {
  plan.clear();
  if (plan.seqs.capacity() < config_.max_num_seqs) {  // a new place of the pipeline
    plan.seqs.reserve(config_.max_num_seqs);
    plan.joined.reserve(config_.max_num_seqs);
    plan.left.reserve(config_.max_num_seqs);
  }
  uint32_t budget = config_.max_num_batched_tokens;
  const bool preempted = plan_running(plan, budget);
  if (!preempted) admit(plan, budget, now);
  if (plan.empty()) return false;
  plan.step = next_step_++;
  std::swap(plan.left, left_);
  ++n_plans_in_flight_;
  return true;
}

bool Scheduler::plan_running(StepPlan& plan, uint32_t& budget) {
  const uint64_t before = counters_.n_preemptions;
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Sequence& s = *running_[i];
    const uint32_t n = policy::rows(
        {s.n_missing(), budget, config_.long_prefill_token_threshold, alone(), config_.enable_chunked_prefill});
    if (n == 0) continue;                        // waits for a result, or for a larger budget: those behind it may go
    if (!make_room(s, s.n_computed + n)) break;  // it was the victim itself, and so the last
    append(plan, s, n);
    budget -= n;
  }
  return counters_.n_preemptions != before;
}

bool Scheduler::make_room(Sequence& s, uint32_t n_positions) {
  while (!kv_.grow(s, n_positions)) {
    candidates_.clear();
    for (const Sequence* r : running_) candidates_.push_back({r->id});
    Sequence& victim = *running_[policy::fcfs_victim(candidates_)];
    preempt(victim);
    if (&victim == &s) return false;
  }
  return true;
}

void Scheduler::preempt(Sequence& victim) {
  // First come, first served takes the last, which no plan under way has reached yet: its rows need not be taken out
  // again.
  HEDDLE_CHECK(running_.back() == &victim);
  running_.pop_back();
  leave_slot(victim);
  kv_.release(victim);  // a later launch on the runner's queue may use the blocks at once (release-after-flight)
  victim.n_computed = victim.n_committed = 0;
  victim.state = SequenceState::preempted;
  ++victim.n_preemptions;
  ++counters_.n_preemptions;
  waiting_.push_front(victim);
}

void Scheduler::admit(StepPlan& plan, uint32_t& budget, MonotonicTime now) {
  if (waiting_.empty() || free_slots_.empty() || budget == 0) return;
  uint32_t promised = 0;
  for (const Sequence* s : running_) promised += n_promised(*s);
  while (budget > 0 && !waiting_.empty() && !free_slots_.empty()) {
    Sequence& s = *waiting_.head();
    // Its token in flight comes first: computing it again now would give that token twice. It still goes first, since
    // the step in flight ends soon and those behind it would take the blocks that it needs.
    if (s.n_in_flight > 0) return;
    if (kv_.pool().n_free() <= promised) return;  // one block at least is always new: do not walk a long prefix in vain
    const KvCache::Hit hit = kv_.find_prefix(s);
    const auto n_hit = static_cast<uint32_t>(hit.blocks.size());
    const uint32_t n_needed = kv_.blocks_for_positions(s.n_known()) - n_hit;
    if (!policy::fits({n_needed, kv_.pool().n_free() - hit.n_idle, promised})) return;
    const uint32_t n_missing = s.n_known() - n_hit * config_.block_size;
    const uint32_t n = policy::rows(
        {n_missing, budget, config_.long_prefill_token_threshold, alone(), config_.enable_chunked_prefill});
    if (n == 0) return;

    PrefixStats& stats = s.n_preemptions == 0 ? counters_.first : counters_.again;
    if (config_.enable_prefix_caching) {
      ++stats.requests;
      stats.queries += s.n_known();
      stats.hits += s.n_known() - n_missing;
    }
    if (s.n_preemptions == 0) {
      s.n_cached = s.n_known() - n_missing;
      s.scheduled = now;
      s.tokens.reserve(s.n_limit);  // launched plans hold spans into these
      s.blocks.reserve(kv_.blocks_for_positions(s.n_limit));
      s.chain.hashes.reserve(s.n_limit / config_.block_size);
    }
    waiting_.remove(s);
    kv_.take_prefix(s, hit);
    s.n_computed = s.n_committed = s.n_known() - n_missing;
    const bool grown = kv_.grow(s, s.n_computed + n);
    HEDDLE_CHECK(grown);
    s.state = SequenceState::running;
    s.slot = free_slots_.back();
    free_slots_.pop_back();
    s.needs_join = true;
    running_.push_back(&s);
    append(plan, s, n);
    budget -= n;
    promised += n_promised(s);
  }
}

// Blocks that a sequence will still need for tokens it has now.
uint32_t Scheduler::n_promised(const Sequence& s) const {
  if (s.n_computed >= s.n_known()) return 0;
  const uint32_t n_wanted = kv_.blocks_for_positions(s.n_known());
  return n_wanted > s.blocks.size() ? n_wanted - s.blocks.size() : 0;
}

void Scheduler::append(StepPlan& plan, Sequence& s, uint32_t n_rows) {
  if (s.needs_join) {
    const std::span<const TokenId> tokens(s.tokens);
    plan.joined.push_back({s.slot, s.sampling, tokens.first(s.n_prompt), tokens.subspan(s.n_prompt)});
    s.needs_join = false;
  }
  SeqStep& step = plan.seqs.emplace_back();
  step.id = s.id;
  step.slot = s.slot;
  step.sequence = &s;
  step.n_tokens = n_rows;
  step.first_position = s.n_computed;
  step.blocks = s.blocks.span();
  step.token_index = s.n_expected() - s.n_prompt;
  if (s.n_computed < s.n_known()) {
    step.source = TokenSource::host;
    step.tokens = std::span<const TokenId>(s.tokens).subspan(s.n_computed, n_rows);
  } else {
    step.source = TokenSource::slot;
  }
  if (s.n_computed + n_rows == s.n_expected()) {
    step.outputs = Outputs::sample;
    ++s.n_placeholders;
    ++plan.n_sampled;
  }
  s.n_computed += n_rows;
  ++s.n_in_flight;
  plan.n_rows += n_rows;
}

void Scheduler::commit(const StepPlan& plan, std::span<const SeqResult> results, std::vector<Delivered>& delivered) {
  HEDDLE_CHECK_OP(results.size(), ==, plan.seqs.size());
  HEDDLE_CHECK_OP(n_plans_in_flight_, >, 0u);
  --n_plans_in_flight_;
  ++counters_.n_steps;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const SeqStep& step = plan.seqs[i];
    Sequence& s = *step.sequence;
    const bool sampled = step.outputs == Outputs::sample;
    const TokenId token = results[i].token;
    --s.n_in_flight;
    s.n_placeholders -= sampled;
    if (s.state == SequenceState::retiring) {
      counters_.n_discarded_tokens += sampled;
      retire_if_landed(s);
      continue;
    }
    if (s.state == SequenceState::running && !results[i].nan) {
      s.n_committed = step.first_position + step.n_tokens;
      if (s.n_committed / config_.block_size > s.chain.n_confirmed) kv_.share(s);
    }
    if (!sampled) continue;
    HEDDLE_CHECK((token >= 0) != results[i].nan);
    if (!results[i].nan) s.tokens.push_back(token);
    delivered.push_back({&s, token});
  }
}

void Scheduler::finish(Sequence& s) {
  if (s.is_ended()) return;
  if (s.is_queued()) {
    waiting_.remove(s);
  } else {
    running_.erase(std::find(running_.begin(), running_.end(), &s));
    leave_slot(s);
  }
  s.state = SequenceState::retiring;
  retiring_.push_back(&s);
  retire_if_landed(s);
}

void Scheduler::retire_if_landed(Sequence& s) {
  if (s.n_in_flight > 0) return;
  kv_.release(s);
  s.state = SequenceState::finished;
  retiring_.erase(std::find(retiring_.begin(), retiring_.end(), &s));
  retired_.push_back(&s);
  ++n_finished_;
}

void Scheduler::leave_slot(Sequence& s) {
  // A slot that the runner was never told of (a fault made it forget) needs no farewell.
  if (!s.needs_join) left_.push_back(s.slot);
  free_slots_.push_back(s.slot);
  s.needs_join = false;
}

void Scheduler::rollback(const StepPlan& plan) {
  HEDDLE_CHECK_OP(n_plans_in_flight_, >, 0u);
  --n_plans_in_flight_;
  for (const SeqStep& step : plan.seqs) {
    Sequence& s = *step.sequence;
    --s.n_in_flight;
    s.n_placeholders -= step.outputs == Outputs::sample;
    if (s.state == SequenceState::retiring) retire_if_landed(s);
    if (s.state != SequenceState::running) continue;
    s.n_computed = step.first_position;
    kv_.shrink(s, s.n_computed);
  }
}

void Scheduler::forget_slots() {
  HEDDLE_CHECK_OP(n_plans_in_flight_, ==, 0u);
  left_.clear();
  for (Sequence* s : running_) s->needs_join = true;
}

Sequence* Scheduler::stuck_head() const {
  return n_plans_in_flight_ == 0 && running_.empty() ? waiting_.head() : nullptr;
}

View Scheduler::view() const {
  View view;
  view.block_size = config_.block_size;
  view.max_num_seqs = config_.max_num_seqs;
  view.n_plans_in_flight = n_plans_in_flight_;
  view.n_added = n_added_;
  view.n_finished = n_finished_;
  view.n_cached_blocks = pool().n_cached();
  for (uint32_t i = 0; i < pool().n_total(); ++i)
    view.blocks.push_back({pool().references(BlockId(i)), pool().hashed(BlockId(i))});
  view.free_list = pool().free_list();
  const auto add = [&view](const Sequence& s, Place place) {
    view.sequences.push_back({s.id, s.state, place, s.slot, s.n_prompt, s.n_limit, s.n_known(), s.n_computed,
                              s.n_committed, s.n_placeholders, s.n_in_flight, s.chain.n_confirmed,
                              std::vector<BlockId>(s.blocks.span().begin(), s.blocks.span().end())});
  };
  for (const Sequence* s = waiting_.head(); s; s = s->next) add(*s, Place::waiting);
  for (const Sequence* s : running_) add(*s, Place::running);
  for (const Sequence* s : retiring_) add(*s, Place::retiring);
  return view;
}

}  // namespace heddle::sched
