#pragma once
// What a scheduler asks its policy: in which line and place a sequence waits, whose turn it is, who gives way. Owned by
// the scheduler, loop thread only, no allocation while planning (a new tenant's line apart). Decisions are the pure
// functions of policy.h and fair_share.h; an object here holds only the accounts that its policy keeps between plans.
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "sched/config.h"
#include "sched/policy.h"

namespace heddle::sched {

struct Sequence;

// What waits and runs in one line of the queue when a plan is made.
struct LineState {
  uint32_t n_running = 0;  // parked sessions included: they hold a place
  uint32_t n_missing = 0;  // rows that its running sequences need until their newest tokens
  uint32_t n_ready = 0;
  // Known tokens of the first ready one, cached or not; 0: none is ready.
  uint32_t head_cost = 0;
};

class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;

  // The line belongs to a new tenant from now on, before its first sequence is queued. Lines are numbered from 0
  // without gaps; one whose tenant has gone is given away again.
  virtual void add_line(uint32_t line, uint32_t weight);
  virtual uint32_t line(const Sequence& s) const;  // default: one line for all
  // `n_preemptions` counts all preemptions of the scheduler so far, this one included; 0 for a new sequence.
  virtual QueueKey key(const Sequence& s, uint64_t n_preemptions) const = 0;

  // A plan begins. Before anything else is asked.
  virtual void begin_plan(std::span<const LineState> lines);
  // Most rows of the plan's remaining budget that the next sequence of `line` may take; at least 1 while there is a
  // budget, so that decoding is never held up.
  virtual uint32_t rows_for(uint32_t line, uint32_t budget, std::span<const LineState> lines) const;
  // The line whose head is admitted next, if there is room for it; none: nobody may be admitted now.
  virtual std::optional<uint32_t> next_line(std::span<const LineState> lines) const;
  // The head of `line` found no slot or no blocks: which of the running ones gives its place up for it, if any.
  virtual std::optional<size_t> yields_to(uint32_t line, std::span<const LineState> lines,
                                          std::span<const policy::Candidate> running);
  // Blocks ran out for a running sequence: who gives way. There is at least one.
  virtual size_t victim(std::span<const policy::Candidate> running) const = 0;
  // Rows planned for a line's sequences (negative: taken out of the plan again).
  virtual void charge(uint32_t line, int64_t rows);
  // A sequence of the line was admitted.
  virtual void admitted(uint32_t line);
};

std::unique_ptr<SchedulingPolicy> make_policy(const Config& config);

}  // namespace heddle::sched
