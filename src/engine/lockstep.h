#pragma once
// What a step loop asks of its group when engines step together (wave.h). Implemented by EngineGroup; loop thread only.
// An engine without one, the ordinary case, steps as it likes.
#include <cstdint>

namespace heddle::engine {

class Lockstep {
 public:
  virtual ~Lockstep() = default;
  // Whether the engine may take a step now. `unfinished`: it has something to compute, which starts a wave where none
  // is running. `drained`: no step of its own is in flight, so that at a barrier its word counts. After a no the engine
  // waits until it is woken.
  virtual bool may_step(uint32_t rank, bool unfinished, bool drained) = 0;
  virtual void stepped(uint32_t rank) = 0;  // with rows or without
  // While others have work, an engine that has none and was told to stop goes on taking part.
  virtual bool in_wave(uint32_t rank) const = 0;
  // No more steps from this engine: its device is lost, or its loop ends.
  virtual void leave(uint32_t rank) = 0;
};

}  // namespace heddle::engine
