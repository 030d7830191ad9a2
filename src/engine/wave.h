#pragma once
// Waves of a lockstep group (vLLM's data parallel coordinator): engines whose model needs collectives in every step
// must all step while any has work. An engine without work takes dummy steps. Every `sync_interval` steps the group
// agrees whether anybody is unfinished; if nobody is, the wave is complete: all pause, the wave's number rises, the
// step counters return to 0. A request that arrives while the group is paused starts the next wave for all. Nobody
// steps past a multiple of the interval before all have agreed there. Pure bookkeeping, no I/O; shared by the engines
// of a group, loop thread only. Dense engines need none of this.
#include <cstdint>
#include <vector>

namespace heddle::engine {

class Wave {
 public:
  enum class Agreement : uint8_t {
    open,      // somebody has not reported
    go_on,     // somebody is unfinished: another interval for all
    complete,  // nobody is: the group is paused
  };

  Wave(uint32_t n_engines, uint32_t sync_interval);

  // A request arrives; `stamp` is the wave that was current when it was read, which may be over since. While the group
  // is paused this starts the current wave. Gives the wave that the request runs in.
  uint32_t arrive(uint32_t stamp);

  // Whether this engine may take its next step; if not and a wave is running, it is at the barrier and must report.
  bool may_step(uint32_t rank) const { return running_ && !has_left(rank) && counters_[rank] < barrier_; }
  void count_step(uint32_t rank);
  // At the barrier, with no step in flight. May be repeated, with another answer, until all have reported.
  Agreement report(uint32_t rank, bool unfinished);
  // The engine takes no further part (its device is lost, or its loop has ended); the others do not wait for it.
  Agreement leave(uint32_t rank);

  bool has_left(uint32_t rank) const { return reports_[rank] == Report::left; }
  bool running() const { return running_; }
  uint32_t current_wave() const { return current_; }
  uint64_t n_complete() const { return n_complete_; }  // waves
  uint32_t step_counter(uint32_t rank) const { return counters_[rank]; }

 private:
  enum class Report : uint8_t { none, finished, unfinished, left };

  Agreement agree();

  uint32_t sync_interval_;
  bool running_ = false;
  uint32_t current_ = 0;
  uint64_t n_complete_ = 0;
  uint32_t barrier_;                // steps of this wave that everybody may take
  std::vector<uint32_t> counters_;  // [engines] steps of this wave
  std::vector<Report> reports_;     // [engines] at the barrier
};

}  // namespace heddle::engine
