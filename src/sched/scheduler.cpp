#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sched/admission.h"

namespace heddle::sched {

const char* to_string(Deferral deferral) {
  switch (deferral) {
    case Deferral::none:
      return "none";
    case Deferral::grammar:
      return "grammar";
    case Deferral::image:
      return "image";
    case Deferral::adapter:
      return "adapter";
    case Deferral::remote_kv:
      return "remote_kv";
    case Deferral::input:
      return "input";
  }
  return "none";
}

Scheduler::Scheduler(Config config, BlockHash hash)
    : config_(std::move(config)), kv_(config_, hash), policy_(make_policy(config_)) {
  const Result<void> valid = validate(config_);
  if (!valid) check_failed(__FILE__, __LINE__, "valid configuration", valid.error().message);
  running_.reserve(config_.max_num_seqs);
  parked_.reserve(config_.max_num_seqs);
  retiring_.reserve(config_.max_num_seqs);
  retired_.reserve(config_.max_num_seqs);
  left_.reserve(config_.max_num_seqs);
  candidates_.reserve(config_.max_num_seqs);
  free_slots_.reserve(config_.max_num_seqs);
  for (uint32_t i = config_.max_num_seqs; i > 0; --i) free_slots_.emplace_back(i - 1);  // slot 0 is given first
  n_watermark_ = static_cast<uint32_t>(std::ceil(config_.watermark * config_.n_blocks));
}

Scheduler::~Scheduler() = default;

bool Scheduler::plan(StepPlan& plan, MonotonicTime now) {
  plan.clear();
  if (pause_ == Pause::all) return false;
  if (plan.seqs.capacity() < config_.max_num_seqs) {  // a new place of the pipeline
    plan.seqs.reserve(config_.max_num_seqs);
    plan.joined.reserve(config_.max_num_seqs);
    plan.left.reserve(config_.max_num_seqs);
    plan.copies.reserve(config_.max_num_seqs);
  }
  now_ = now;
  budget_ = config_.max_num_batched_tokens;
  const uint64_t n_preemptions = counters_.n_preemptions;
  list_lines();
  policy_->begin_plan(lines_);
  const bool preempted = plan_running(plan);
  if (!preempted) {
    admit(plan);
    // Who had to make way was the only one that ran: with nothing planned, the rule against admitting beside a
    // preemption protects nobody.
    if (plan.empty() && running_.empty() && counters_.n_preemptions != n_preemptions) admit(plan);
  }
  if (plan.empty()) return false;
  fork_prompts(plan);
  plan.step = next_step_++;
  counters_.n_copied_blocks += plan.copies.size();
  std::swap(plan.left, left_);
  ++n_plans_in_flight_;
  return true;
}

bool Scheduler::plan_running(StepPlan& plan) {
  const uint64_t before = counters_.n_preemptions;
  for (cursor_ = 0; cursor_ < running_.size() && budget_ > 0; ++cursor_) {
    Sequence& s = *running_[cursor_];
    const uint32_t n = wanted_rows(s, s.n_missing());
    // 0: waits for a result, or for a larger budget: those behind it may go.
    if (n > 0 && make_room(plan, s, s.n_computed + n)) append(plan, s, n);
  }
  return counters_.n_preemptions != before;
}

uint32_t Scheduler::wanted_rows(const Sequence& s, uint32_t n_missing) const {
  // A running one that cannot take its rows in parts (a fault took them back) gets them whole: less would be nothing,
  // as often as it is asked.
  const bool whole = !config_.enable_chunked_prefill && s.state == SequenceState::running;
  const uint32_t budget = whole ? budget_ : std::min(budget_, policy_->rows_for(line(s), budget_, lines_));
  return policy::rows(
      {n_missing, budget, config_.long_prefill_token_threshold, alone(), config_.enable_chunked_prefill});
}

KvCache::Growth Scheduler::growth(StepPlan& plan) const {
  return {now_, next_step_ == 0 ? 0 : next_step_ - 1, &plan.copies};
}

// Room for a running sequence's rows. False if it was the victim itself.
bool Scheduler::make_room(StepPlan& plan, Sequence& s, uint32_t n_positions) {
  while (!kv_.grow(s, n_positions, growth(plan))) {
    list_candidates();
    Sequence& victim = *running_[policy_->victim(candidates_)];
    // A session between its turns gives way before somebody who runs preempts himself.
    if (&victim == &s && evict_session()) continue;
    preempt(&plan, victim);
    if (&victim == &s) return false;
  }
  return true;
}

void Scheduler::list_candidates() {
  candidates_.clear();
  for (const Sequence* r : running_) candidates_.push_back({r->id, r->priority, r->order, line(*r)});
}

void Scheduler::list_lines() {
  const uint32_t n = std::max({1u, queue_.n_lines(), tenants_.n_lines()});
  lines_.assign(n, {});
  if (config_.policy != PolicyKind::fair) {
    lines_[0].n_running = n_running() + n_parked();
  } else {
    for (const Sequence* s : running_) {
      LineState& state = lines_[line(*s)];
      ++state.n_running;
      state.n_missing += s->n_missing();
    }
    for (const Sequence* s : parked_) ++lines_[line(*s)].n_running;
  }
  for (uint32_t i = 0; i < queue_.n_lines(); ++i) {
    lines_[i].n_ready = static_cast<uint32_t>(queue_.ready(i).size());
    if (const Sequence* head = queue_.head(i)) lines_[i].head_cost = head->n_known();
  }
}

// `plan`: the one under way, if there is one; rows that it has for the victim are taken out again.
void Scheduler::preempt(StepPlan* plan, Sequence& victim) {
  if (plan != nullptr) take_out(*plan, victim);
  const auto at = std::find(running_.begin(), running_.end(), &victim);
  // plan_running goes on with the one behind; at the first place the count wraps, and comes back with the next step.
  if (static_cast<size_t>(at - running_.begin()) <= cursor_) --cursor_;
  running_.erase(at);
  n_reserved_slots_ -= n_reserved_slots(victim);
  leave_slot(victim);
  kv_.release(victim);  // a later launch on the runner's queue may use the blocks at once (release-after-flight)
  victim.n_computed = victim.n_committed = 0;
  victim.state = SequenceState::preempted;
  ++victim.n_preemptions;
  ++counters_.n_preemptions;
  enqueue(victim, ++n_returned_);
}

void Scheduler::take_out(StepPlan& plan, Sequence& s) {
  const auto step =
      std::find_if(plan.seqs.begin(), plan.seqs.end(), [&](const SeqStep& p) { return p.sequence == &s; });
  if (step == plan.seqs.end()) return;
  budget_ += step->n_tokens;
  plan.n_rows -= step->n_tokens;
  policy_->charge(line(s), -int64_t{step->n_tokens});
  if (step->outputs == Outputs::sample) {
    --s.n_placeholders;
    --plan.n_sampled;
  }
  s.n_computed = step->first_position;
  --s.n_in_flight;
  const auto join =
      std::find_if(plan.joined.begin(), plan.joined.end(), [&](const SlotJoin& j) { return j.slot == s.slot; });
  if (join != plan.joined.end()) {
    plan.joined.erase(join);
    s.needs_join = true;
  }
  std::erase_if(plan.copies, [&](const BlockCopy& copy) {
    const auto table = s.blocks.span();
    return std::find(table.begin(), table.end(), copy.to) != table.end();
  });
  plan.seqs.erase(step);
}

void Scheduler::append(StepPlan& plan, Sequence& s, uint32_t n_rows) {
  if (s.scheduled == MonotonicTime{}) s.scheduled = now_;
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
    step.masked = s.masked;
    ++s.n_placeholders;
    ++plan.n_sampled;
  }
  s.n_computed += n_rows;
  ++s.n_in_flight;
  plan.n_rows += n_rows;
  budget_ -= n_rows;
  policy_->charge(line(s), n_rows);
}

// Prompts whose last row is in this plan: the sequences that wait for it sample from that row too.
void Scheduler::fork_prompts(StepPlan& plan) {
  const auto n = static_cast<uint32_t>(plan.seqs.size());
  for (uint32_t i = 0; i < n; ++i) {
    Sequence& owner = *plan.seqs[i].sequence;
    if (owner.forks.empty() || plan.seqs[i].outputs != Outputs::sample || plan.seqs[i].token_index > 0) continue;
    const uint32_t n_slots = n_reserved_slots(owner);
    n_reserved_slots_ -= n_slots;
    const auto last = owner.forks.begin() + n_slots;
    for (auto child = owner.forks.begin(); child != last; ++child) fork(plan, i, **child);
    owner.forks.erase(owner.forks.begin(), last);  // more than there are slots: they queue once the prompt is committed
    n_reserved_slots_ += n_reserved_slots(owner);
  }
}

void Scheduler::fork(StepPlan& plan, uint32_t owner_step, Sequence& child) {
  const Sequence& owner = *plan.seqs[owner_step].sequence;
  child.prompt_owner = nullptr;
  --n_attached_;
  child.state = SequenceState::running;
  child.slot = free_slots_.back();
  free_slots_.pop_back();
  child.scheduled = now_;
  child.tokens.reserve(child.n_limit);
  child.blocks.reserve(kv_.blocks_for_positions(child.n_limit));
  child.chain.hashes.reserve(child.n_limit / config_.block_size);
  kv_.fork(owner, child, owner.n_computed);
  child.n_computed = owner.n_computed;
  child.n_committed = owner.n_committed;
  running_.push_back(&child);
  plan.joined.push_back({child.slot, child.sampling, std::span<const TokenId>(child.tokens), {}});
  SeqStep& step = plan.seqs.emplace_back();
  step.id = child.id;
  step.slot = child.slot;
  step.sequence = &child;
  step.logits_of = owner_step;
  step.first_position = child.n_computed;
  step.blocks = child.blocks.span();
  step.outputs = Outputs::sample;
  step.masked = child.masked;
  ++child.n_placeholders;
  ++child.n_in_flight;
  ++plan.n_sampled;
}

uint32_t Scheduler::n_deferred() const {
  uint32_t n = queue_.n_deferred() + n_parked();
  for (uint32_t i = 0; i < queue_.n_lines(); ++i)
    for (const Sequence& s : queue_.ready(i)) n += s.n_in_flight > 0;
  return n;
}

View Scheduler::view() const {
  View view;
  view.block_size = config_.block_size;
  view.max_num_seqs = config_.max_num_seqs;
  view.n_plans_in_flight = n_plans_in_flight_;
  view.n_added = n_added_;
  view.n_finished = n_finished_;
  view.n_cached_blocks = pool().n_cached();
  view.paused = pause_ != Pause::none;
  for (uint32_t i = 0; i < pool().n_total(); ++i)
    view.blocks.push_back({pool().references(BlockId(i)), pool().hashed(BlockId(i))});
  view.free_list = pool().free_list();
  const auto add = [&view](const Sequence& s, Place place) {
    view.sequences.push_back({s.id, s.state, place, s.slot, s.n_prompt, s.n_limit, s.n_known(), s.n_computed,
                              s.n_committed, s.n_placeholders, s.n_in_flight, s.chain.n_confirmed, s.deferral,
                              std::vector<BlockId>(s.blocks.span().begin(), s.blocks.span().end())});
    for (const Sequence* fork : s.forks)
      view.sequences.push_back({fork->id,
                                fork->state,
                                Place::attached,
                                fork->slot,
                                fork->n_prompt,
                                fork->n_limit,
                                fork->n_known(),
                                fork->n_computed,
                                fork->n_committed,
                                fork->n_placeholders,
                                fork->n_in_flight,
                                fork->chain.n_confirmed,
                                fork->deferral,
                                {}});
  };
  for (const Sequence* s : queue_.in_order()) add(*s, Place::waiting);
  for (const Sequence* s : running_) add(*s, Place::running);
  for (const Sequence* s : parked_) add(*s, Place::parked);
  for (const Sequence* s : retiring_) add(*s, Place::retiring);
  return view;
}

}  // namespace heddle::sched
