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

// One bit a token id, set where the token is allowed; word i holds ids [32 i, 32 i + 32). [ceil(vocab / 32)]
using TokenMask = std::span<const uint32_t>;

// What the sampling half needs from the host.
struct SampleArgs {
  // Masks of the plan's entries that are `masked`, in the plan's order; valid until the step's result was taken.
  std::span<const TokenMask> masks;
};

// What sleeping gives back. Neither keeps a KV block; the difference is whether the weights stay near.
enum class SleepLevel : uint8_t {
  pause = 0,    // nothing: the engine only stops planning
  weights = 1,  // weights and KV memory go back to the system; the weights' file stays in the page cache
  discard = 2,  // ... and so do the file's cached pages
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  // Forward half: returns at once. The plan is immutable and alive until its commit. At most max_in_flight() at a time.
  virtual Ticket launch(const sched::StepPlan& plan) = 0;
  // Sampling half: exactly once a ticket, in ticket order, and before the next launch. Masks may be asked for while the
  // forward half runs.
  virtual void sample(Ticket ticket, const SampleArgs& args) = 0;
  // In ticket order. The awaitable resumes on the loop.
  virtual boost::asio::awaitable<Result<StepResult, Fault>> wait(Ticket ticket) = 0;
  virtual uint32_t max_in_flight() const = 0;

  // Takes part in a collective step without rows (data parallel lockstep). Dense models have no collectives: nothing.
  virtual void dummy_step() {}

  // Both only with no step in flight. After sleep() nothing may be launched until wake_up() gave a value; every KV
  // block and slot is forgotten. wake_up() reads what was given back; on an error the runner sleeps on.
  virtual void sleep(SleepLevel level) = 0;
  virtual boost::asio::awaitable<Result<void>> wake_up() = 0;
};

}  // namespace heddle::engine
