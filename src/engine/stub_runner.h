#pragma once
// A deterministic fake of what computes: it drives tests of everything above it, and measures the host side alone.
// Owned by the engine; loop thread only; starts no thread and needs no device.
//
// It keeps what a device keeps: KV blocks (here: the token and its position, instead of K and V) and slots. A sampled
// token is a function of the prefix as read back through the block table, and of the slot's seed. So chunking, caching,
// preemption and batching cannot change a token, and any mistake in them does: wrong sharing, a block reused too early,
// a wrong position. Plans that break the contract (gaps in positions, a wrong source, a table that is too short) abort
// with both values.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model_runner.h"

namespace heddle::engine {

// What was called, in order; shared by the fakes of a test. "L0 L1 W0" reads: step 0 launched, step 1 launched, result
// 0 taken.
class CallTrace {
 public:
  void add(char call, uint64_t step) { calls_.push_back({call, step}); }
  void clear() { calls_.clear(); }
  std::string text(std::string_view calls = "LW") const;  // only these letters

 private:
  struct Call {
    char call;
    uint64_t step;
  };
  std::vector<Call> calls_;
};

struct StubOptions {
  uint32_t max_num_seqs = 128;
  uint32_t n_blocks = 0;
  uint32_t block_size = 16;
  uint32_t pipeline_depth = 1;
  TokenId vocab_size = 32000;
  // The token after a prefix, or -1 for a row of NaN; default: a hash of prefix and seed.
  std::function<TokenId(std::span<const TokenId> prefix, uint64_t seed)> next;
  // Read back and check every position of the prefix for each sampled row. Off: O(1) a row, for measuring the host.
  bool read_back = true;
  // The fault of wake_up(), asked for at each call; default: none.
  std::function<std::optional<std::string>()> wake_fault;
  // When a step's work is done: at launch, or as late as wait() allows. Results are the same if plans keep still.
  bool late = true;

  enum class Clock : uint8_t {
    none,        // results are there at once
    fictitious,  // time is a number that launches (host_time) and steps (step_time, row_time) move on
    real,        // wait() takes as long as the device would
  };
  Clock clock = Clock::none;
  Monotonic::duration step_time{}, row_time{}, host_time{};

  // Asked at each launch: the step then fails with this fault when its result is awaited. The ticket is filled in.
  std::function<std::optional<Fault>(const sched::StepPlan& plan)> fault;
  // Asked when a result is awaited, if its launch had no fault. What is not late was computed and stored by then.
  std::function<std::optional<Fault>(const sched::StepPlan& plan)> wait_fault;
  std::shared_ptr<CallTrace> trace;  // L launch, S sample, W result taken, F fault taken, D step without rows
};

class StubRunner final : public ModelRunner {
 public:
  explicit StubRunner(StubOptions options);
  ~StubRunner() override;

  Ticket launch(const sched::StepPlan& plan) override;
  void sample(Ticket ticket, const SampleArgs& args) override;
  boost::asio::awaitable<Result<StepResult, Fault>> wait(Ticket ticket) override;
  uint32_t max_in_flight() const override { return options_.pipeline_depth; }
  void dummy_step() override;
  // Forgets every block and slot; what is planned afterwards as if it were still there aborts.
  void sleep(SleepLevel level) override;
  boost::asio::awaitable<Result<void>> wake_up() override;

  // What the default `next` gives: the tokens that a sequence with this prompt and seed must have.
  static TokenId token_after(std::span<const TokenId> prefix, uint64_t seed, TokenId vocab_size);

  Monotonic::duration idle_time() const { return idle_; }  // of the device, between its first and its last step
  Monotonic::duration busy_time() const { return busy_; }
  uint64_t n_rows() const { return n_rows_; }
  uint64_t n_dummy_steps() const { return n_dummy_steps_; }
  uint64_t n_copies() const { return n_copies_; }  // blocks copied on write
  bool asleep() const { return asleep_; }

 private:
  struct Position;
  struct Slot;
  struct Flight;

  void check_plan(const sched::StepPlan& plan) const;
  void schedule(Flight& flight);
  void compute(Flight& flight);
  void compute_rows(const sched::SeqStep& step, Slot& slot);
  void copy_blocks(const sched::StepPlan& plan);
  TokenId sample_row(const sched::SeqStep& step, Slot& slot, TokenMask mask);
  void drop_all();

  Position& at(std::span<const BlockId> blocks, uint32_t position);

  StubOptions options_;
  std::vector<Position> kv_;                                                 // [n_blocks, block_size]
  std::vector<Slot> slots_;                                                  // [max_num_seqs]
  std::vector<Flight> flights_;                                              // [pipeline_depth], by ticket number
  uint64_t n_launched_ = 0, n_sampled_ = 0, n_computed_ = 0, n_waited_ = 0;  // tickets, in this order
  std::vector<TokenId> prefix_;
  MonotonicTime now_{}, device_free_{};  // of the fictitious clock; device_free_ of both
  bool device_began_ = false;
  Monotonic::duration idle_{}, busy_{};
  uint64_t n_rows_ = 0, n_dummy_steps_ = 0, n_copies_ = 0;
  bool asleep_ = false;
};

}  // namespace heddle::engine
