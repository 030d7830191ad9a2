#pragma once
// The runner that computes: a model family on a device. It turns a plan into a batch, appends the forward pass and the
// sampling to the device's queue, and wakes the step loop when the step's work has run. Owner: the engine; loop thread
// only. Memory is taken in the constructor: a step reuses the buffers of its place in the pipeline. Runners of data
// parallel engines share the weights; the device is a runner's own.
//
// All steps share one arena. The queue runs in order, and a step is launched only after the one before it was sampled,
// so a step overwrites activations that nothing reads any more (release-after-flight).
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <vector>

#include "device/device.h"
#include "engine/model_runner.h"
#include "engine/model_weights.h"

namespace heddle::engine {

struct DeviceRunnerOptions {
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t n_blocks = 0;
  uint32_t block_size = 16;
  uint32_t pipeline_depth = 1;
  bool hash_logits = false;      // fill SeqResult::logits_hash: copies and reads every sampled row, for tests
  uint32_t all_logits_rows = 0;  // rows of a step that may ask for Outputs::all_logits, kept for logits(); for tests
};

class DeviceRunner final : public ModelRunner {
 public:
  // `loop` is the executor of the thread that calls. Allocates KV, slots and the arena on the device, which can compute
  // with these weights.
  DeviceRunner(const boost::asio::any_io_executor& loop, std::unique_ptr<device::Device> device,
               std::shared_ptr<ModelWeights> weights, const DeviceRunnerOptions& options);
  ~DeviceRunner() override;

  Ticket launch(const sched::StepPlan& plan) override;
  void sample(Ticket ticket, const SampleArgs& args) override;
  boost::asio::awaitable<Result<StepResult, Fault>> wait(Ticket ticket) override;
  uint32_t max_in_flight() const override { return options_.pipeline_depth; }
  void sleep(SleepLevel level) override;
  boost::asio::awaitable<Result<void>> wake_up() override;

  // Raw logits of the rows of sequences that asked for all_logits, in batch order: [rows, vocab]. As long-lived as the
  // StepResult.
  std::span<const float> logits(Ticket ticket) const;
  const model::Model& model() const { return weights_->model(); }
  device::Device& device() { return *device_; }

 private:
  enum class State : uint8_t { free, forwarded, sampled, done };
  struct Step;

  Step& step(Ticket ticket) const;
  void build_batch(const sched::StepPlan& plan, Step& step) const;
  void add_rows(const sched::SeqStep& seq, Step& step) const;
  void finish(Step& step);

  DeviceRunnerOptions options_;
  std::unique_ptr<device::Device> device_;
  std::shared_ptr<ModelWeights> weights_;
  bool asleep_ = false;
  std::vector<std::unique_ptr<Step>> steps_;  // [pipeline_depth], by ticket number
  uint64_t n_launched_ = 0, n_sampled_ = 0, n_waited_ = 0;
  MonotonicTime last_end_{};
  boost::asio::steady_timer done_;  // never expires; cancelled to wake wait()
};

// 64-bit hash of a row's bits.
uint64_t hash_row(std::span<const float> row);

}  // namespace heddle::engine
