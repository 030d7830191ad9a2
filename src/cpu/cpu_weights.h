#pragma once
// What loading leaves on the CPU: packed matrices, vectors and rotary tables. Shared by a device and its siblings,
// which compute with one copy. Filled by loading threads before any op reads it, or after clear(); then read only.
// Failing to get memory is an Error of WeightMemory.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cpu/rope_table.h"
#include "cpu/weight_memory.h"

namespace heddle::cpu {

struct CpuWeights {
  WeightMemory memory;
  std::mutex vectors_mutex;
  std::vector<std::unique_ptr<float[]>> vectors;
  std::vector<std::unique_ptr<RopeTable>> rope;
  std::atomic<bool> reads_cells{false};  // some Linear multiplies with quantised activations

  // Everything goes back to the system. Nothing may refer to it any more.
  void clear() {
    memory.clear();
    vectors.clear();
    rope.clear();
    reads_cells.store(false, std::memory_order_relaxed);
  }
};

}  // namespace heddle::cpu
