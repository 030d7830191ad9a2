#pragma once
// How long cached KV blocks live, sampled: for a share of the blocks, from the moment a block is taken until its
// content is evicted. Owned by KvCache; loop thread only. Given times, it needs no clock. Observations gather until
// they are taken (the statistics do so after each step).
//   lifetime   evicted - allocated
//   idle       evicted - last hit, or the lifetime if it was never hit
//   reuse gap  between consecutive accesses among the last four hits
// A block that returns to the free list is no event; one without a hash that is taken again is no eviction: its state
// is replaced.
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace heddle::sched {

struct Residency {
  double lifetime = 0, idle = 0;  // seconds
  std::vector<double> reuse_gaps;
};

class ResidencySampler {
 public:
  // `share` in [0, 1] of the blocks taken; 0: none, and every call returns at once.
  ResidencySampler(uint32_t n_blocks, double share, uint64_t seed);

  void on_allocate(BlockId block, MonotonicTime now);
  void on_hit(BlockId block, MonotonicTime now);
  void on_evict(BlockId block, MonotonicTime now);
  void on_reset();  // the whole cache was dropped: no observations

  std::vector<Residency> take();  // since the last call

 private:
  static constexpr size_t kRing = 4;
  struct Sample {
    bool watched = false;
    MonotonicTime allocated{};
    std::array<MonotonicTime, kRing> hits{};  // hit i at i % kRing
    uint64_t n_hits = 0;
  };
  double share_;
  std::mt19937_64 random_;
  std::vector<Sample> samples_;  // [n_blocks], empty if share is 0
  std::vector<Residency> observed_;
};

}  // namespace heddle::sched
