#pragma once
// The steps in flight: a ring of places, each with the plan that its step was launched with. Owned by the engine; loop
// thread only. A place's memory is reused, so a plan never moves between launch and commit.
#include <vector>

#include "base/check.h"
#include "engine/model_runner.h"
#include "sched/plan.h"

namespace heddle::engine {

enum class StepState : uint8_t {
  planned,    // the plan is made
  forwarded,  // launched; sampling held back (a row waits for a mask)
  sampled,    // nothing left to ask of the runner but the result
  done,       // committed or rolled back; the place is free
};

struct Step {
  StepState state = StepState::done;
  Ticket ticket;
  sched::StepPlan plan;
  std::vector<TokenMask> masks;  // of the plan's masked rows, while sampled

  void advance(StepState next) {
    HEDDLE_CHECK_OP(static_cast<int>(next), ==, (static_cast<int>(state) + 1) % 4);
    state = next;
  }
};

class Pipeline {
 public:
  explicit Pipeline(uint32_t depth) : steps_(depth) { HEDDLE_CHECK_OP(depth, >=, 1u); }

  bool has_room() const { return size_ < steps_.size(); }
  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }

  // The place for the next plan. Nothing is taken until push().
  Step& next() {
    HEDDLE_CHECK(has_room());
    return steps_[(first_ + size_) % steps_.size()];
  }
  void push() { ++size_; }
  Step& oldest() { return at(0); }
  Step& newest() { return at(size_ - 1); }
  void pop_oldest() {
    HEDDLE_CHECK(at(0).state == StepState::done);
    first_ = (first_ + 1) % static_cast<uint32_t>(steps_.size());
    --size_;
  }
  // A fault takes steps back in reverse.
  void pop_newest() {
    at(size_ - 1).state = StepState::done;
    --size_;
  }

 private:
  Step& at(uint32_t i) {
    HEDDLE_CHECK_OP(i, <, size_);
    return steps_[(first_ + i) % steps_.size()];
  }

  std::vector<Step> steps_;
  uint32_t first_ = 0, size_ = 0;
};

}  // namespace heddle::engine
