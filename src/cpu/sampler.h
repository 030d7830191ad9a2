#pragma once
// The sampling op of the CPU device: the state of the slots and the commands that change or use it. What is computed is
// the contract of device/sampling.h. Owner: CpuDevice. join, leave and sample are called on the loop thread, in queue
// order; each returns a command that the device appends to its queue. The worker team runs a command's chunks
// [0, n_chunks()) exactly once each, on any thread and in any order, but commands in queue order; so slots need no
// locks. Arguments are trusted (checked with HEDDLE_CHECK). Never fails: a row that has no answer yields token -1 and
// nan.
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/isa.h"
#include "cpu/token_counts.h"
#include "device/sampling.h"
#include "device/tensor.h"

namespace heddle::cpu {

struct SampleKernels;

class Sampler {
 public:
  class Command {
   public:
    virtual ~Command() = default;
    uint32_t n_chunks() const { return n_chunks_; }
    // The chunk that finishes last hands the command back to the pool: read n_chunks() before the first call.
    virtual void run_chunk(uint32_t chunk) noexcept = 0;

   protected:
    friend class Sampler;
    uint32_t n_chunks_ = 1;
    std::atomic<bool> busy_{false};
  };

  Sampler(uint32_t n_slots, uint32_t vocab_size, Isa isa);
  ~Sampler();

  // Copies what it needs; the spans may die after the call.
  Command& join(SlotId slot, const device::SlotSampling& sampling, std::span<const TokenId> prompt,
                std::span<const TokenId> generated);
  Command& leave(SlotId slot);
  // `rows` is copied; `logits` (changed in place by bias and penalties) and `out` live until the command has run.
  Command& sample(device::Tensor logits, std::span<const device::SampleRow> rows, std::span<device::SampledToken> out);

  // What the slot sampled last, -1 before the first. For commands that run in queue order (embed).
  TokenId last_token(SlotId slot) const { return slots_[slot.value].last_token; }

 private:
  struct Slot {
    device::SlotSampling sampling;
    TokenCounts counts;  // filled only if a penalty needs it
    TokenId last_token = -1;
    bool occupied = false;
  };
  struct Change;
  struct Sample;

  uint32_t vocab_size_;
  const SampleKernels& kernels_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Change>> changes_;  // pools: commands in flight and commands to use again
  std::vector<std::unique_ptr<Sample>> samples_;
};

}  // namespace heddle::cpu
