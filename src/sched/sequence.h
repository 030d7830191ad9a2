#pragma once
// One stream of tokens being computed. Owned by the engine, which keeps it alive until the scheduler reports it
// retired; written by the scheduler alone, on the loop thread.
//
// The numbers, and their inequality:
//   n_committed <= n_computed <= n_known() + n_placeholders <= n_limit
//   n_computed      rows planned so far, [0, n_computed): advanced by plan, before the result is there
//   n_committed     rows whose step was committed: their K and V are in the blocks
//   n_placeholders  tokens sampled by steps in flight: they exist on the device, and are not known here yet
//   n_limit         the sequence ends with reason length when n_known() reaches it
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "device/sampling.h"
#include "sched/block_table.h"
#include "sched/prefix_cache.h"

namespace heddle::sched {

//            ┌──────────── preempted ◄───┐
//            ▼                           │
//  waiting ─────► running ───────────────┤
//     └──────────────┴────► retiring ────┴──► finished
enum class SequenceState : uint8_t {
  waiting,    // in the queue, never planned; no blocks
  running,    // has a slot and blocks; rows may be in flight
  preempted,  // at the front of the queue, blocks given up; rows may still be in flight, their token counts
  retiring,   // ended, with rows in flight: keeps its blocks until they come back, their tokens are dropped
  finished,   // ended, nothing in flight, no blocks: the scheduler has forgotten it
};

// Hashes of the full blocks seen so far, and how far the table's blocks are in the prefix cache.
struct PrefixChain {
  std::vector<Hash128> hashes;  // kept over a preemption
  uint32_t n_confirmed = 0;     // blocks of the table whose content is known to the cache
  ContentId content = 0;        // of the last confirmed block
};

struct Sequence {
  SeqId id;
  SequenceState state = SequenceState::waiting;
  bool needs_join = false;  // the runner does not know this slot's sequence: the next plan lists it as joined
  SlotId slot;              // while running
  uint32_t n_prompt = 0;
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
  uint32_t n_cached = 0;  // prompt tokens found in the prefix cache at the first admission
  uint32_t n_preemptions = 0;
  MonotonicTime scheduled{};  // start of the plan that first had it
  void* owner = nullptr;      // the engine's record of it

  Sequence* previous = nullptr;  // in the waiting queue
  Sequence* next = nullptr;

  uint32_t n_known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t n_generated() const { return n_known() - n_prompt; }
  uint32_t n_expected() const { return n_known() + n_placeholders; }
  // Rows that could be planned now. None once the steps in flight reach the limit: the row of the last token is never
  // needed.
  uint32_t n_missing() const { return n_expected() < n_limit ? n_expected() - n_computed : 0; }
  bool is_queued() const { return state == SequenceState::waiting || state == SequenceState::preempted; }
  bool is_prefilling() const { return n_computed < n_prompt; }
  bool is_ended() const { return state == SequenceState::retiring || state == SequenceState::finished; }
};

}  // namespace heddle::sched
