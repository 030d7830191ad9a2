#pragma once
// The inside of Engine, shared by engine.cpp (the door: submit, abort, numbers), step_loop.cpp (the turns),
// sessions.cpp, deadlines.cpp and operations.cpp (pause, sleep, reset).
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
#include "engine/rates.h"
#include "sched/scheduler.h"

namespace heddle::engine {

struct Engine::Impl {
  enum class Phase : uint8_t { open, stopping };  // stopping: no new work; live requests go on
  using Condition = bool (Impl::*)() const;

  Impl(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer);

  // ---- engine.cpp
  std::optional<Refusal> check_open() const;  // whether the engine takes new work at all
  std::optional<Refusal> check(const Request& request) const;
  std::optional<Refusal> check_tokens(const std::vector<TokenId>& tokens) const;
  std::optional<Refusal> check_fits(uint64_t n_prompt) const;
  void open(Request request, std::shared_ptr<OutputSink> sink);
  bool abort(const std::string& id);
  uint32_t abort_all();
  // Ends one sequence now, in any state. Its last delta goes out at the next flush.
  void end(LiveSequence& live, Finish finish);
  void end_all(LiveRequest& request, const Finish& finish);
  void count_ends(FinishReason reason, uint64_t n);
  void settle(LiveSequence& live);
  void settle_queue(LiveRequest& request);  // it no longer waits for its first token
  void reap();                              // destroys requests that are over
  void wake();
  void assert_loop() const;
  MonotonicTime now() const { return config_.clock(); }

  // ---- step_loop.cpp
  boost::asio::awaitable<void> run();
  void fill();
  bool sample_newest();  // false: a row's mask waits for a token in flight
  void commit(const StepResult& result);
  void take_back(const Fault& fault);
  void deliver();
  bool fail_stuck_head();
  void measure(const sched::StepPlan& plan, const StepResult& result);
  bool may_step();              // of a lockstep group: whether the group lets this engine go on
  bool has_unfinished() const;  // something to compute that the pause allows

  // ---- sessions.cpp
  std::optional<Refusal> check_turn(const LiveRequest& request, const Turn& turn) const;
  void append(LiveRequest& request, Turn turn);
  void close_session(LiveRequest& request);
  void end_turn(LiveSequence& live);
  void continue_sessions();
  void start_turn(LiveRequest& request);

  // ---- deadlines.cpp
  void drop_late();
  void count_rows_before();

  // ---- operations.cpp
  boost::asio::awaitable<void> pause(PauseMode mode, bool clear_cache);
  boost::asio::awaitable<Result<void>> sleep(SleepLevel level, PauseMode mode);
  boost::asio::awaitable<Result<void>> wake_up(WakeTags tags);
  boost::asio::awaitable<bool> reset_prefix_cache(bool reset_running);
  boost::asio::awaitable<void> until(Condition condition);
  boost::asio::awaitable<void> begin_operation();
  void end_operation();
  void resume();
  void notify();  // conditions may have changed
  bool nothing_in_flight() const { return pipeline_.empty(); }
  bool nothing_in_flight_or_resumed() const { return nothing_in_flight() || wanted_pause_ == sched::Pause::none; }
  bool nothing_begun() const;
  bool nothing_begun_or_resumed() const {
    return nothing_begun() || wanted_pause_ == sched::Pause::none || !memory_is_here();
  }
  void set_pause(sched::Pause wanted);
  boost::asio::awaitable<void> stand_still();
  bool no_operation() const { return !operating_; }
  bool memory_is_here() const { return !weights_away_ && !kv_away_; }

  Config config_;
  std::unique_ptr<ModelRunner> runner_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  sched::Scheduler scheduler_;
  Pipeline pipeline_;
  OutputProcessor outputs_;
  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> live_;  // by external id
  std::vector<std::unique_ptr<LiveRequest>> landing_;                   // on_end delivered, rows still in flight
  std::vector<sched::Delivered> delivered_;                             // of the commit under way
  std::vector<LiveRequest*> timed_;                                     // with deadlines, live
  std::vector<LiveRequest*> sessions_;                                  // live

  Phase phase_ = Phase::open;
  std::string sickness_;  // why the engine is unhealthy; empty while it is not
  uint64_t next_seq_id_ = 1;
  Snapshot counts_;  // the counters of it; gauges are read at snapshot()
  MonotonicTime last_step_{};
  RateMeter meter_;
  uint64_t queued_tokens_ = 0, uncached_tokens_ = 0;  // of requests without a first token

  Lockstep* lockstep_ = nullptr;  // null: steps alone, as almost every engine does
  uint32_t rank_ = 0;             // in the lockstep group

  // Operations. Nothing is planned while memory is away or an operation needs the engine to stand still, whatever pause
  // is wanted.
  bool operating_ = false;  // one at a time
  bool still_ = false;
  sched::Pause wanted_pause_ = sched::Pause::none;
  SleepLevel sleep_level_ = SleepLevel::pause;
  bool weights_away_ = false, kv_away_ = false;
  std::vector<boost::asio::steady_timer*> watchers_;  // of until(); cancelled by notify()

  // Lives in run()'s frame, which the loop may destroy after this object: a condition that wake() signals by cancelling
  // it.
  boost::asio::steady_timer* idle_ = nullptr;
  bool woken_ = false;           // something changed since the last turn began
  std::thread::id loop_thread_;  // set when run() starts
};

}  // namespace heddle::engine
