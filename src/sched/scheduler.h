#pragma once
// Who is computed in each step. Owned by the engine; loop thread only; knows no device, no text and no clock. A step is
// plan → (launch, result) → commit, or rollback; several plans may be in flight, and plan assumes that they will
// succeed. Plan and commit allocate nothing while sequences decode.
//
// Rules: one budget of rows for prompts and decoding; running sequences first; when blocks run out, the policy's victim
// gives up its blocks and is computed again later, with the same tokens; nothing is admitted by a plan that preempted;
// the first of the queue is admitted when all of its tokens fit, and nobody passes it.
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "sched/config.h"
#include "sched/invariants.h"
#include "sched/kv_cache.h"
#include "sched/plan.h"
#include "sched/policy.h"
#include "sched/sequence.h"
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
  PrefixStats first, again;
};

// A token that a commit delivered.
struct Delivered {
  Sequence* sequence = nullptr;
  TokenId token = -1;  // -1: NaN logits; the caller must end the sequence
};

class Scheduler {
 public:
  // The configuration is valid (validate) and demand_of(prompt) fits for every sequence that is added.
  explicit Scheduler(Config config, BlockHash hash = hash_block);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a sequence: id, n_prompt, n_limit, tokens, domain, sampling and owner are set.
  void add(Sequence& sequence);

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

  // With no plan in flight and an empty plan: the head of the queue, if there is one, can never run (forward-progress).
  Sequence* stuck_head() const;

  uint32_t n_running() const { return static_cast<uint32_t>(running_.size()); }
  uint32_t n_waiting() const { return waiting_.size(); }
  uint32_t n_plans_in_flight() const { return n_plans_in_flight_; }
  const Counters& counters() const { return counters_; }
  const BlockPool& pool() const { return kv_.pool(); }
  const Config& config() const { return config_; }
  View view() const;  // for the validator

 private:
  bool plan_running(StepPlan& plan, uint32_t& budget);  // true if it preempted
  void admit(StepPlan& plan, uint32_t& budget, MonotonicTime now);
  bool make_room(Sequence& sequence, uint32_t n_positions);
  void preempt(Sequence& victim);
  void leave_slot(Sequence& sequence);
  void append(StepPlan& plan, Sequence& sequence, uint32_t n_rows);
  void retire_if_landed(Sequence& sequence);
  uint32_t n_promised(const Sequence& sequence) const;
  bool alone() const { return running_.size() + waiting_.size() <= 1; }

  Config config_;
  KvCache kv_;
  WaitingQueue waiting_;
  std::vector<Sequence*> running_;   // in the order of admission
  std::vector<Sequence*> retiring_;  // ended, rows in flight
  std::vector<Sequence*> retired_;
  std::vector<SlotId> free_slots_;
  std::vector<SlotId> left_;  // for the next plan
  std::vector<policy::Candidate> candidates_;
  uint64_t next_step_ = 0;
  uint32_t n_plans_in_flight_ = 0;
  uint64_t n_added_ = 0, n_finished_ = 0;
  Counters counters_;
};

}  // namespace heddle::sched
