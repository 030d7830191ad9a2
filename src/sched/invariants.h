#pragma once
// The scheduler's invariants (design: kv-conservation, release-after-flight, forward-progress, one-end), checked over a
// copy of its state. A pure function: no scheduler, no device. Tests run it after every step, debug builds after every
// turn.
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sched/sequence.h"

namespace heddle::sched {

// The scheduler's list that the sequence is in; attached: waits with the owner of its prompt.
enum class Place : uint8_t { waiting, attached, running, parked, retiring };

struct SequenceView {
  SeqId id;
  SequenceState state;
  Place place;
  SlotId slot;
  uint32_t n_prompt, n_limit, n_known, n_computed, n_committed, n_placeholders, n_in_flight, n_confirmed;
  Deferral deferral = Deferral::none;
  std::vector<BlockId> blocks;
};

struct BlockView {
  uint32_t references;
  bool hashed;
};

struct View {
  uint32_t block_size = 0, max_num_seqs = 0, n_plans_in_flight = 0;
  bool paused = false;
  uint64_t n_added = 0, n_finished = 0;
  uint32_t n_cached_blocks = 0;  // as counted by the pool
  std::vector<BlockView> blocks;
  std::vector<BlockId> free_list;
  std::vector<SequenceView> sequences;
};

// One line each, starting with the name of the invariant; empty if all hold.
std::vector<std::string> violations(const View& view);
// To be asked right after a plan that gave nothing.
std::vector<std::string> progress_violations(const View& view);

}  // namespace heddle::sched
