#pragma once
// Everything that the host does in a step, without a device and without sockets: an engine over the stub runner, a real
// tokenizer, and a chat completion streamed for each sequence into a sink that throws its bytes away. All sequences are
// admitted in the first step and decode from then on (greedy, no stop strings). For `heddle bench loop` and the test
// that this path allocates nothing. The loop runs on the calling thread, inside run_to() only.
#include <boost/asio/io_context.hpp>
#include <memory>

#include "app/step_timer.h"
#include "engine/engine.h"
#include "engine/stub_runner.h"
#include "stats/exporter.h"
#include "text/tokenizer.h"

namespace heddle::app {

struct DecodeLoopOptions {
  uint32_t n_sequences = 256;
  uint32_t n_steps = 2200;  // how far run_to() may go; the sequences end after it
  uint32_t depth = 2;
  Monotonic::duration step_time{};  // of the device, on the real clock; zero: results are there at once
};

class DecodeLoop {
 public:
  DecodeLoop(const DecodeLoopOptions& options, std::shared_ptr<const text::Tokenizer> tokenizer);
  ~DecodeLoop();  // aborts what is live and drains
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;

  // Until the results of so many steps were taken.
  void run_to(uint64_t n_steps);
  // What GET /metrics would do.
  void scrape() const { (void)exporter_.text(); }

  const StepTimes& times() const { return timer_->times(); }
  const engine::StubRunner& device() const { return *stub_; }
  uint32_t n_running() const { return engine_->snapshot().running; }
  uint64_t n_bytes() const { return *n_bytes_; }  // of events, thrown away

 private:
  std::unique_ptr<engine::Engine> make_engine(const DecodeLoopOptions& options,
                                              std::shared_ptr<const text::Tokenizer> tokenizer);
  void submit(const DecodeLoopOptions& options);

  boost::asio::io_context context_{1};
  engine::StubRunner* stub_ = nullptr;
  StepTimer* timer_ = nullptr;
  std::shared_ptr<uint64_t> n_bytes_ = std::make_shared<uint64_t>(0);
  std::unique_ptr<engine::Engine> engine_;
  stats::Exporter exporter_;
};

}  // namespace heddle::app
