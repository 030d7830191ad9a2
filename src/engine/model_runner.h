#pragma once
// The ModelRunner seam: what an engine asks of the thing that computes. One per engine, used on the loop thread only.
// Runners: DeviceRunner (a model family on a Device) and StubRunner (a deterministic fake for tests and host-side
// benches).
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

// A fault at ticket t voids every later ticket: when wait() returns it, the runner has dropped all steps in flight and
// the state of every slot. KV rows of committed steps are intact. The next plan joins each sequence again.
struct Fault {
  enum class Scope : uint8_t {
    device,    // nothing more can run: the engine turns unhealthy
    steps,     // unknown whose fault: every sequence in the voided steps ends with an error, the engine goes on
    sequence,  // the fault of `guilty` alone: it ends with an error, the others are computed again
  };
  Ticket ticket;
  std::string message;
  Scope scope = Scope::device;
  SeqId guilty{};
};

using SeqResult = sched::SeqResult;

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
