#pragma once
// One stream of tokens being computed. Owned by the engine, which keeps it alive until the scheduler reports it
// retired; written by the scheduler alone, on the loop thread.
//
// The numbers, and their inequality:
//   n_committed <= n_computed <= n_known() + n_placeholders <= n_limit
//   n_computed      rows planned so far, [0, n_computed): advanced by plan, before the result is there
//   n_committed     rows whose step was committed: their K and V are in the blocks
//   n_placeholders  tokens sampled by steps in flight: they exist on the device, and are not known here yet
//   (between a session's turns the inequality waits for rows in flight: they are of a token that was dropped)
//   n_limit         the sequence (of a session: its turn) ends with reason length when n_known() reaches it
#include <boost/intrusive/set_hook.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "device/sampling.h"
#include "sched/block_table.h"
#include "sched/prefix_cache.h"
#include "sched/queue_key.h"

namespace heddle::sched {

//               ┌──────── preempted ◄──┐
//               ▼                      │
//  waiting ──► running ────────────────┤
//     │         ▲  │                   │
//     │         │  └──► parked ────────┤
//     │         └─────────┘            │
//     └──────────────────► retiring ───┴──► finished
enum class SequenceState : uint8_t {
  waiting,    // in the queue (or with its prompt's owner, see `prompt_owner`), never planned; no blocks
  running,    // has a slot and blocks; rows may be in flight
  preempted,  // in the queue, blocks given up; rows may still be in flight, their token counts
  parked,     // a session between two turns: keeps its blocks and a place among max_num_seqs, until more input comes
  retiring,   // ended, with rows in flight: keeps its blocks until they come back, their tokens are dropped
  finished,   // ended, nothing in flight, no blocks: the scheduler has forgotten it
};

// What a queued sequence waits for besides room. Such a sequence is skipped: it keeps its place and blocks nobody.
enum class Deferral : uint8_t { none, grammar, image, adapter, remote_kv, input };
const char* to_string(Deferral deferral);

// Hashes of the full blocks seen so far, and how far the table's blocks are in the prefix cache.
struct PrefixChain {
  std::vector<Hash128> hashes;  // kept over a preemption
  uint32_t n_confirmed = 0;     // blocks of the table whose content is known to the cache
  ContentId content = 0;        // of the last confirmed block
};

struct Sequence {
  SeqId id;
  SequenceState state = SequenceState::waiting;
  Deferral deferral = Deferral::none;
  bool needs_join = false;  // the runner does not know this slot's sequence: the next plan lists it as joined
  bool begun = false;       // it, or the prompt that it shares, was planned once: a pause of admission lets it run
  bool masked = false;      // each sampled row needs a token mask
  SlotId slot;              // while running
  uint32_t n_prompt = 0;    // of a session: tokens before those of the present turn's answer
  uint32_t n_limit = 0;
  uint32_t n_computed = 0;
  uint32_t n_committed = 0;
  uint32_t n_placeholders = 0;
  uint32_t n_in_flight = 0;     // launched steps that have rows of this sequence
  std::vector<TokenId> tokens;  // prompt, then generated; never moves while a step is in flight
  BlockTable blocks;
  PrefixChain chain;
  std::shared_ptr<const PrefixDomain> domain;
  const device::SlotSampling* sampling = nullptr;
  uint32_t n_cached = 0;  // prompt tokens found in the prefix cache at the first admission, or held since the last turn
  uint32_t n_preemptions = 0;
  MonotonicTime scheduled{};  // start of the plan that first had it
  void* owner = nullptr;      // the engine's record of it

  // What policies look at.
  int32_t priority = 0;  // smaller first
  uint64_t order = 0;    // of arrival; set by Scheduler::add
  uint32_t tenant = 0;   // index into the scheduler's tenants

  // n sequences from one prompt: the first computes it, the others wait with it and fork from it at its last row.
  std::vector<Sequence*> forks;      // of the owner: those that have not forked yet
  Sequence* prompt_owner = nullptr;  // of one that has not forked yet

  QueueKey key;  // while queued
  // The owner may destroy sequences and scheduler in any order: nothing is checked or unlinked by a destructor.
  using Hook = boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;
  Hook hook;

  uint32_t n_known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t n_generated() const { return n_known() - n_prompt; }
  uint32_t n_expected() const { return n_known() + n_placeholders; }
  // Rows that could be planned now. None once the steps in flight reach the limit: the row of the last token is never
  // needed.
  uint32_t n_missing() const { return n_expected() < n_limit ? n_expected() - n_computed : 0; }
  bool is_queued() const { return state == SequenceState::waiting || state == SequenceState::preempted; }
  // Of a session: rows in flight are of the turn before, and their tokens are dropped.
  bool is_between_turns() const {
    return state == SequenceState::parked || (state == SequenceState::preempted && deferral == Deferral::input);
  }
  bool is_prefilling() const { return n_computed < n_prompt; }
  bool is_ended() const { return state == SequenceState::retiring || state == SequenceState::finished; }
};

}  // namespace heddle::sched
