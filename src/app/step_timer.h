#pragma once
// A runner that passes every call on and notes between which calls of the engine time goes by: from outside, so that
// the engine carries nothing for it. Four looks at the clock a step. Loop thread only.
//
//   result ──── deciding ────► launch, sample ──── delivering ────► wait
//   commit, append, plan       the runner          flush, reap, one yield to the loop
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <utility>

#include "engine/model_runner.h"

namespace heddle::app {

struct StepTimes {
  uint64_t n_steps = 0;  // results taken
  Monotonic::duration deciding{}, running{}, delivering{};
  Monotonic::duration total() const { return deciding + running + delivering; }
  friend StepTimes operator-(const StepTimes& a, const StepTimes& b) {
    return {a.n_steps - b.n_steps, a.deciding - b.deciding, a.running - b.running, a.delivering - b.delivering};
  }
};

class StepTimer final : public engine::ModelRunner {
 public:
  explicit StepTimer(std::unique_ptr<engine::ModelRunner> runner) : runner_(std::move(runner)) {}

  const StepTimes& times() const { return times_; }

  engine::Ticket launch(const sched::StepPlan& plan) override {
    pass(times_.running);
    return runner_->launch(plan);
  }
  void sample(engine::Ticket ticket, const engine::SampleArgs& args) override {
    runner_->sample(ticket, args);
    pass(times_.delivering);
  }
  boost::asio::awaitable<Result<engine::StepResult, engine::Fault>> wait(engine::Ticket ticket) override {
    pass(times_.running);
    auto result = co_await runner_->wait(ticket);
    ++times_.n_steps;
    pass(times_.deciding);
    co_return result;
  }
  uint32_t max_in_flight() const override { return runner_->max_in_flight(); }
  void dummy_step() override { runner_->dummy_step(); }
  void sleep(engine::SleepLevel level) override { runner_->sleep(level); }
  boost::asio::awaitable<Result<void>> wake_up() override { return runner_->wake_up(); }

 private:
  // The time since the last call goes to what was under way; `next` is under way from here on.
  void pass(Monotonic::duration& next) {
    const MonotonicTime now = Monotonic::now();
    if (under_way_ != nullptr) *under_way_ += now - since_;
    under_way_ = &next;
    since_ = now;
  }

  std::unique_ptr<engine::ModelRunner> runner_;
  StepTimes times_;
  Monotonic::duration* under_way_ = nullptr;
  MonotonicTime since_{};
};

}  // namespace heddle::app
