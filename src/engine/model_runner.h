#pragma once
// The ModelRunner seam: what an engine asks of the thing that computes. One per engine, used on the loop thread only.
// Runners: DeviceRunner (a model family on a Device) and StubRunner (a deterministic fake for tests and host-side benches).
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "device/sampling.h"
#include "sched/plan.h"

namespace heddle::engine {

// Launched steps are numbered by the runner, ascending from 0.
struct Ticket {
  uint64_t number = 0;
};

// A fault at ticket t voids every later ticket.
struct Fault {
  Ticket ticket;
  std::string message;
};

// One entry per SeqStep of the plan, in its order; tokens is empty when the step asked for none.
struct SeqResult {
  TokenId token = -1;      // -1: none (1 + n_draft tokens come with speculation)
  bool nan = false;        // the row's logits held a NaN: the sequence ends with reason error
  uint64_t logits_hash = 0;  // 64-bit hash of the raw f32 row when the runner was built with hashing on; else 0
};

struct StepResult {
  std::span<const SeqResult> seqs;  // valid until the next launch that reuses the step's slot
  MonotonicTime begin{}, end{};     // device time of the step
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  // Forward half: returns at once. The plan is immutable and alive until its commit. At most max_in_flight() at a time.
  virtual Ticket launch(const sched::StepPlan& plan) = 0;
  // Sampling half: exactly once a ticket, in ticket order.
  virtual void sample(Ticket ticket) = 0;
  // In ticket order. The awaitable resumes on the loop.
  virtual boost::asio::awaitable<Result<StepResult, Fault>> wait(Ticket ticket) = 0;
  virtual uint32_t max_in_flight() const = 0;
};

}  // namespace heddle::engine
