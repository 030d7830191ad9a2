// Who leaves the queue: the policy says whose turn it is, arithmetic says whether there is room.
#include <algorithm>

#include "base/check.h"
#include "sched/admission.h"
#include "sched/scheduler.h"

namespace heddle::sched {

void Scheduler::add(Sequence& s, std::string_view tenant) {
  Sequence* const one[] = {&s};
  add_family(one, tenant);
}

void Scheduler::add_family(std::span<Sequence* const> family, std::string_view tenant) {
  for (Sequence* s : family) {
    HEDDLE_CHECK(s->state == SequenceState::waiting && s->n_computed == 0);
    HEDDLE_CHECK_OP(s->n_prompt, ==, s->tokens.size());
    HEDDLE_CHECK_OP(s->n_prompt, <, s->n_limit);
    s->order = next_order_++;
    if (config_.policy == PolicyKind::fair) {
      const Tenants::Entered entered = tenants_.enter(tenant);
      s->tenant = entered.index;
      if (entered.fresh) {
        const auto weight = config_.tenant_weights.find(tenant);
        policy_->add_line(entered.index, weight == config_.tenant_weights.end() ? 1 : weight->second);
      }
    }
    ++n_added_;
  }
  Sequence& owner = *family.front();
  for (Sequence* s : family.subspan(1)) {
    s->prompt_owner = &owner;
    owner.forks.push_back(s);
    ++n_attached_;
  }
  enqueue(owner, 0);
}

void Scheduler::defer(Sequence& s, Deferral deferral) {
  HEDDLE_CHECK(s.is_queued() && s.prompt_owner == nullptr);
  queue_.defer(s, line(s), deferral);
}

void Scheduler::admit(StepPlan& plan) {
  while (budget_ > 0 && queue_.n_ready() > 0) {
    list_lines();
    Sequence* next = nullptr;
    while (next == nullptr) {
      const std::optional<uint32_t> chosen = policy_->next_line(lines_);
      if (!chosen) return;
      next = admissible(*chosen);
      if (next == nullptr) lines_[*chosen].n_ready = 0;  // nobody there may be admitted now
    }
    Sequence& s = *next;
    // Its token in flight comes first: computing it again now would give that token twice. It still goes first, since
    // the step in flight ends soon and those behind it would take the blocks that it needs.
    if (s.n_in_flight > 0) return;
    const std::optional<KvCache::Hit> hit = find_room(s);
    if (!hit) {
      if (make_way(plan, line(s), s)) continue;
      return;
    }
    const uint32_t n_missing = s.n_known() - static_cast<uint32_t>(hit->blocks.size()) * config_.block_size;
    const uint32_t n = wanted_rows(s, n_missing);
    if (n == 0) return;
    start(plan, s, *hit, n);
  }
}

// The first of the line that may be admitted at all now.
Sequence* Scheduler::admissible(uint32_t line) const {
  const auto is_long = [&](const Sequence& s) { return s.n_known() > config_.long_prefill_token_threshold; };
  const bool capped = config_.max_long_partial_prefills > 0 && config_.long_prefill_token_threshold > 0;
  uint32_t n_long = 0;
  if (capped)
    for (const Sequence* r : running_) n_long += is_long(*r) && r->n_computed < r->n_known();
  if (line >= queue_.n_lines()) return nullptr;
  for (const Sequence& s : queue_.ready(line)) {
    if (pause_ == Pause::admission && !s.begun) continue;
    // Shorter prompts pass one that must wait for another long one.
    if (capped && n_long >= config_.max_long_partial_prefills && is_long(s)) continue;
    return const_cast<Sequence*>(&s);
  }
  return nullptr;
}

// A prompt of several sequences waits for a slot for each, so that it is computed once.
bool Scheduler::has_slots(const Sequence& s) const {
  const size_t n_wanted = size_t{1} + n_reserved_slots(s);
  return n_wanted + n_reserved_slots_ + parked_.size() <= free_slots_.size();
}

uint32_t Scheduler::n_reserved_slots(const Sequence& owner) const {
  return static_cast<uint32_t>(std::min<size_t>(owner.forks.size(), config_.max_num_seqs - 1));
}

// The prefix to start from, if slots and blocks are there for all of its tokens.
std::optional<KvCache::Hit> Scheduler::find_room(Sequence& s) {
  if (!has_slots(s)) return std::nullopt;
  uint32_t promised = running_.empty() ? 0 : n_watermark_;
  for (const Sequence* r : running_) promised += n_promised(*r);
  if (pool().n_free() <= promised) return std::nullopt;  // one block at least is always new: walk no prefix in vain
  const KvCache::Hit hit = kv_.find_prefix(s);
  const uint32_t n_needed = kv_.blocks_for_positions(s.n_known()) - static_cast<uint32_t>(hit.blocks.size());
  if (!policy::fits({n_needed, pool().n_free() - hit.n_idle, promised})) return std::nullopt;
  return hit;
}

// Blocks that a sequence will still need for tokens it has now.
uint32_t Scheduler::n_promised(const Sequence& s) const {
  if (s.n_computed >= s.n_known()) return 0;
  const uint32_t n_wanted = kv_.blocks_for_positions(s.n_known());
  return n_wanted > s.blocks.size() ? n_wanted - s.blocks.size() : 0;
}

// The head found no room. True if admission may go on with it now; a running sequence that gave its place up for it
// means that this plan admits nobody more.
bool Scheduler::make_way(StepPlan& plan, uint32_t line, Sequence& head) {
  if (running_.empty()) return evict_session();
  for (bool exchanged = false;; exchanged = true) {
    list_candidates();
    const std::optional<size_t> victim = policy_->yields_to(line, lines_, candidates_);
    if (!victim) return config_.policy == PolicyKind::fair && !exchanged && evict_session();
    preempt(&plan, *running_[*victim]);
    list_lines();
    if (find_room(head)) return false;
  }
}

void Scheduler::start(StepPlan& plan, Sequence& s, const KvCache::Hit& hit, uint32_t n_rows) {
  const uint32_t n_hit = static_cast<uint32_t>(hit.blocks.size()) * config_.block_size;
  PrefixStats& stats = s.n_preemptions == 0 ? counters_.first : counters_.again;
  if (config_.enable_prefix_caching) {
    ++stats.requests;
    stats.queries += s.n_known();
    stats.hits += n_hit;
  }
  if (s.n_preemptions == 0 || s.scheduled == MonotonicTime{}) s.n_cached = n_hit;
  s.tokens.reserve(s.n_limit);  // launched plans hold spans into these
  s.blocks.reserve(kv_.blocks_for_positions(s.n_limit));
  s.chain.hashes.reserve(s.n_limit / config_.block_size);
  dequeue(s);
  kv_.take_prefix(s, hit, now_);
  s.n_computed = s.n_committed = n_hit;
  const bool grown = kv_.grow(s, s.n_computed + n_rows, growth(plan));
  HEDDLE_CHECK(grown);
  s.state = SequenceState::running;
  s.begun = true;
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  s.needs_join = true;
  running_.push_back(&s);
  n_reserved_slots_ += n_reserved_slots(s);
  policy_->admitted(line(s));
  append(plan, s, n_rows);
}

// A session between its turns gives its blocks and its place to others; its next turn is computed anew. The one that
// has been idle longest goes.
bool Scheduler::evict_session() {
  const auto idle = std::find_if(parked_.begin(), parked_.end(), [](const Sequence* s) { return s->n_in_flight == 0; });
  if (idle == parked_.end()) return false;
  Sequence& s = **idle;
  parked_.erase(idle);
  kv_.release(s);
  s.n_computed = s.n_committed = 0;
  s.state = SequenceState::preempted;
  s.deferral = Deferral::input;
  ++s.n_preemptions;
  ++counters_.n_evicted_sessions;
  enqueue(s, ++n_returned_);
  return true;
}

}  // namespace heddle::sched
