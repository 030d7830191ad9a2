#pragma once
// The inside of Engine, shared by engine.cpp (the door: submit, abort, stop, numbers) and step_loop.cpp (the turns).
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/live_request.h"
#include "engine/output_processor.h"
#include "engine/pipeline.h"
#include "sched/scheduler.h"

namespace heddle::engine {

struct Engine::Impl {
  enum class Phase : uint8_t { open, stopping };  // stopping: no new work; live requests go on

  Impl(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer);

  // ---- engine.cpp
  std::optional<Refusal> check(const Request& request) const;
  void open(Request request, std::shared_ptr<OutputSink> sink);
  void abort(const std::string& id);
  void abort_all();
  // Ends one sequence now, in any state. Its last delta goes out at the next flush.
  void end(LiveSequence& live, Finish finish);
  void settle(LiveSequence& live);
  void reap();  // destroys requests that are over
  void wake();
  void assert_loop() const;

  // ---- step_loop.cpp
  boost::asio::awaitable<void> run();
  void fill();
  void commit(const StepResult& result);
  void take_back(const Fault& fault);
  void deliver();
  bool fail_stuck_head();

  Config config_;
  std::unique_ptr<ModelRunner> runner_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  sched::Scheduler scheduler_;
  Pipeline pipeline_;
  OutputProcessor outputs_;
  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> live_;  // by external id
  std::vector<std::unique_ptr<LiveRequest>> landing_;                   // on_end delivered, rows still in flight
  std::vector<sched::Delivered> delivered_;                             // of the commit under way

  Phase phase_ = Phase::open;
  std::string sickness_;  // why the engine is unhealthy; empty while it is not
  uint64_t next_seq_id_ = 1;
  Snapshot counts_;  // the counters of it; gauges are read at snapshot()
  MonotonicTime last_step_{};

  // Lives in run()'s frame, which the loop may destroy after this object: a condition that wake() signals by cancelling
  // it.
  boost::asio::steady_timer* idle_ = nullptr;
  bool woken_ = false;           // something changed since the last turn began
  std::thread::id loop_thread_;  // set when run() starts
};

}  // namespace heddle::engine
