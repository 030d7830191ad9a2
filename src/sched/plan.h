#pragma once
// A plan says what one step computes. It is a value, filled by Scheduler::plan in memory that the pipeline's slot owns
// and reuses, immutable from launch to commit, and it is a delta: sequences that joined or left the device's slots
// since the last plan are listed once.
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "device/batch.h"
#include "device/sampling.h"

namespace heddle::sched {

struct Sequence;

// Where a row's token id comes from.
enum class TokenSource : uint8_t { host, slot };  // host: known ids; slot: the token that the device sampled last
enum class Outputs : uint8_t { none, sample, all_logits };
constexpr uint32_t kOwnRow = UINT32_MAX;

// Copy on write: `to` gets the content of `from` after every earlier step and before any row of this one.
using BlockCopy = device::BlockCopy;

// A step's entry for one sequence. n_tokens is 0 for a fork: a sequence that shares the prompt computed by another
// entry of this step, and samples its own first token from the logits of that entry's last row.
struct SeqStep {
  SeqId id;
  SlotId slot;
  Sequence* sequence = nullptr;  // for the scheduler's commit; runners do not touch it
  uint32_t n_tokens = 0;         // rows of this sequence in the step
  uint32_t logits_of = kOwnRow;  // of a fork: the entry (index into seqs, before this one) that it samples from
  bool masked = false;           // the sampled row needs a token mask, which depends on every token before it
  uint32_t n_draft = 0;          // 0 today
  uint32_t first_position = 0;   // n_computed when the plan was made
  TokenSource source = TokenSource::host;
  Outputs outputs = Outputs::none;  // sample iff the last row is the sequence's newest known token
  uint32_t token_index = 0;         // index of the generated token that `sample` yields
  std::span<const TokenId> tokens;  // [n_tokens] for host; valid until commit
  std::span<const BlockId> blocks;  // covers [0, first_position + n_tokens); valid until commit
};

struct SlotJoin {
  SlotId slot;
  const device::SlotSampling* sampling = nullptr;  // owned by the sequence
  std::span<const TokenId> prompt;
  std::span<const TokenId> generated;  // not empty after a preemption
};

// What a step gave one sequence: one entry per SeqStep of the plan, in its order.
struct SeqResult {
  TokenId token = -1;        // -1: none was wanted, or nan (1 + n_draft tokens come with speculation)
  bool nan = false;          // the row's logits held a NaN: the sequence ends with reason error
  uint64_t logits_hash = 0;  // 64-bit hash of the raw f32 row when the runner was built with hashing on; else 0
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<SlotId> left;  // applied before joined: a slot may change hands in one plan
  std::vector<SlotJoin> joined;
  std::vector<BlockCopy> copies;  // in order: a block may be read by one and written by a later one
  std::vector<SeqStep> seqs;
  uint32_t n_rows = 0;
  uint32_t n_sampled = 0;
  void clear() {
    left.clear();
    joined.clear();
    copies.clear();
    seqs.clear();
    n_rows = 0;
    n_sampled = 0;
  }
  bool empty() const { return n_rows == 0; }
};

}  // namespace heddle::sched
