#pragma once
// Who is computed in each step. Owned by the engine; loop thread only; knows no device, no text and no clock. A step is
// plan → (launch, result) → commit, or rollback; several plans may be in flight, and plan assumes that they will
// succeed. Plan and commit allocate nothing while sequences decode.
//
// Rules: one budget of rows for prompts and decoding; running sequences first; when blocks run out, the policy's victim
// gives up its blocks and is computed again later, with the same tokens; nothing is admitted by a plan that preempted;
// the first in the policy's order is admitted when all of its tokens fit, and nobody of its line passes it, except
// those that need not wait for what it waits for (deferral, the cap on long prompts).
//
// scheduler.cpp plans, scheduler_admission.cpp admits, scheduler_commit.cpp takes results, ends and faults,
// scheduler_sessions.cpp has turns, pause and the operations of an operator.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "sched/config.h"
#include "sched/invariants.h"
#include "sched/kv_cache.h"
#include "sched/plan.h"
#include "sched/policy.h"
#include "sched/scheduling_policy.h"
#include "sched/sequence.h"
#include "sched/tenants.h"
#include "sched/waiting_queue.h"

namespace heddle::sched {

// Prefix look-ups at admission, in tokens. `first`: sequences admitted for the first time; `again`: after a preemption.
struct PrefixStats {
  uint64_t requests = 0, queries = 0, hits = 0;
};

struct Counters {
  uint64_t n_steps = 0;  // committed
  uint64_t n_preemptions = 0;
  uint64_t n_discarded_tokens = 0;  // sampled for a sequence that had ended
  uint64_t n_forks = 0;             // sequences that took a prompt computed by another
  uint64_t n_copied_blocks = 0;     // on write, after a fork
  uint64_t n_evicted_sessions = 0;  // parked ones that lost their blocks to others
  uint64_t n_cache_resets = 0;
  PrefixStats first, again;
};

// A token that a commit delivered.
struct Delivered {
  Sequence* sequence = nullptr;
  TokenId token = -1;  // -1: NaN logits; the caller must end the sequence
};

enum class Pause : uint8_t {
  none,
  admission,  // what has begun goes on, preempted sequences included; new ones wait
  all,        // nothing is planned
};

class Scheduler {
 public:
  // The configuration is valid (validate) and demand_of(prompt) fits for every sequence that is added.
  explicit Scheduler(Config config, BlockHash hash = hash_block);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- intake
  // Queues a sequence: id, n_prompt, n_limit, tokens, domain, sampling, owner are set; priority and deferral may be.
  void add(Sequence& sequence, std::string_view tenant = {});
  // Queues sequences with one prompt: the first computes it, the others fork from it. Not for sessions.
  void add_family(std::span<Sequence* const> family, std::string_view tenant = {});
  // Of a queued sequence: what it waits for besides room; none makes it ready again, in its old place.
  void defer(Sequence& sequence, Deferral deferral);

  // ---- steps
  // Fills the plan; false, and an empty plan, if there is nothing to compute. A filled plan must be committed or rolled
  // back, in order, and must not move until then. `now` stamps sequences scheduled for the first time.
  bool plan(StepPlan& plan, MonotonicTime now);
  // The result of the oldest plan in flight. Appends its tokens and lists them in `delivered`, in the plan's order; the
  // caller decides which sequences end. Tokens of sequences that have ended are dropped.
  void commit(const StepPlan& plan, std::span<const SeqResult> results, std::vector<Delivered>& delivered);
  // Ends a sequence in any state. It leaves queue or slot at once; its blocks return when no step in flight refers to
  // it.
  void finish(Sequence& sequence);
  // A fault voided the plan: call for each plan in flight, newest first, then forget_slots() once.
  void rollback(const StepPlan& plan);
  void forget_slots();
  // Sequences that the scheduler is done with since the last clear; the owner may destroy them.
  std::vector<Sequence*>& retired() { return retired_; }
  // With no plan in flight and an empty plan: the first of the queue, if it can never run (forward-progress).
  Sequence* stuck_head() const;

  // ---- sessions: a sequence whose turns follow each other in one KV
  // A sequence that was never planned gets more prompt.
  void extend(Sequence& sequence, std::span<const TokenId> tokens, uint32_t n_limit);
  // The running sequence's turn is over: its last token is dropped (its row was never computed), what is left becomes
  // prompt, and it parks. Rows in flight are discarded as they land.
  void end_turn(Sequence& sequence);
  // Between turns, with nothing in flight.
  bool can_continue(const Sequence& sequence) const;
  // The next turn: it runs again at once if its KV is there, else it waits to be computed anew. The sampling that
  // `sequence` points to may have changed.
  void continue_turn(Sequence& sequence, std::span<const TokenId> tokens, uint32_t n_limit);

  // ---- operations
  void set_pause(Pause pause) { pause_ = pause; }
  Pause pause() const { return pause_; }
  // Every running sequence and parked session gives up its blocks and is computed again later.
  void preempt_all();
  // Forgets every hash. False, and nothing changed, while anybody holds a block.
  bool reset_prefix_cache();

  // ---- numbers
  uint32_t n_running() const { return static_cast<uint32_t>(running_.size()); }
  uint32_t n_parked() const { return static_cast<uint32_t>(parked_.size()); }
  // Everybody who is neither running nor ended: waiting for room, or deferred (parked sessions and sequences whose
  // token is in flight are).
  uint32_t n_waiting() const { return queue_.size() + n_parked() + n_attached_; }
  uint32_t n_deferred() const;
  uint32_t n_plans_in_flight() const { return n_plans_in_flight_; }
  uint32_t cached_tokens(std::span<const TokenId> prompt, const std::shared_ptr<const PrefixDomain>& domain) const {
    return kv_.cached_tokens(prompt, domain);
  }
  const WaitingQueue& queue() const { return queue_; }
  std::span<Sequence* const> running() const { return running_; }
  const Counters& counters() const { return counters_; }
  uint64_t n_merged_blocks() const { return kv_.n_merged(); }
  std::vector<Residency> take_residency() { return kv_.residency().take(); }
  const BlockPool& pool() const { return kv_.pool(); }
  const Config& config() const { return config_; }
  View view() const;  // for the validator

 private:
  // scheduler.cpp
  bool plan_running(StepPlan& plan);  // true if it preempted
  bool make_room(StepPlan& plan, Sequence& sequence, uint32_t n_positions);
  void preempt(StepPlan* plan, Sequence& victim);
  void take_out(StepPlan& plan, Sequence& sequence);
  void append(StepPlan& plan, Sequence& sequence, uint32_t n_rows);
  void fork_prompts(StepPlan& plan);
  void fork(StepPlan& plan, uint32_t owner_step, Sequence& child);
  uint32_t wanted_rows(const Sequence& sequence, uint32_t n_missing) const;
  void list_candidates();
  void list_lines();
  KvCache::Growth growth(StepPlan& plan) const;
  uint32_t line(const Sequence& sequence) const { return policy_->line(sequence); }
  bool alone() const { return running_.size() + queue_.size() <= 1; }
  // scheduler_admission.cpp
  void admit(StepPlan& plan);
  Sequence* admissible(uint32_t line) const;
  bool has_slots(const Sequence& sequence) const;
  bool make_way(StepPlan& plan, uint32_t line, Sequence& head);
  std::optional<KvCache::Hit> find_room(Sequence& sequence);
  void start(StepPlan& plan, Sequence& sequence, const KvCache::Hit& hit, uint32_t n_rows);
  uint32_t n_promised(const Sequence& sequence) const;
  uint32_t n_reserved_slots(const Sequence& owner) const;
  bool evict_session();
  // scheduler_commit.cpp
  void retire_if_landed(Sequence& sequence);
  void leave_slot(Sequence& sequence);
  void enqueue(Sequence& sequence, uint64_t n_preemptions);
  void dequeue(Sequence& sequence);
  void detach(Sequence& fork);
  void pass_prompt_on(Sequence& owner, Deferral deferral);
  void release_forks(Sequence& owner);
  void take_back_fork(Sequence& fork);
  void settle_parked(Sequence& sequence);

  Config config_;
  KvCache kv_;
  std::unique_ptr<SchedulingPolicy> policy_;
  Tenants tenants_;
  WaitingQueue queue_;
  std::vector<Sequence*> running_;   // in the order of admission
  std::vector<Sequence*> parked_;    // in the order of parking; each holds one of the free slots
  std::vector<Sequence*> retiring_;  // ended, rows in flight
  std::vector<Sequence*> retired_;
  std::vector<SlotId> free_slots_;
  std::vector<SlotId> left_;  // for the next plan
  std::vector<policy::Candidate> candidates_;
  std::vector<LineState> lines_;
  size_t cursor_ = 0;              // of plan_running
  uint32_t budget_ = 0;            // rows left in the plan under way
  MonotonicTime now_{};            // of the plan under way
  uint32_t n_reserved_slots_ = 0;  // for forks of running prompts
  uint32_t n_attached_ = 0;        // forks that wait with their prompt's owner
  uint32_t n_watermark_ = 0;       // blocks
  uint64_t next_step_ = 0;
  uint64_t next_order_ = 0;
  uint64_t n_returned_ = 0;  // to the queue: preempted sequences and evicted sessions
  uint32_t n_plans_in_flight_ = 0;
  uint64_t n_added_ = 0, n_finished_ = 0;
  Pause pause_ = Pause::none;
  Counters counters_;
};

}  // namespace heddle::sched
