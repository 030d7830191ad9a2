#pragma once
// Where packed weights live: large anonymous mappings, aligned to and advised for huge pages, so that a model's many
// small matrices share them and a decode step does not walk page tables. Memory is given out in order and freed as a
// whole, by clear() or when the owner goes. allocate() may be called from several threads. Zero-filled. Running out
// of address space or memory is an Error (the memory plan was checked before loading).
#include <cstddef>
#include <mutex>
#include <vector>

#include "base/result.h"

namespace heddle::cpu {

class WeightMemory {
 public:
  WeightMemory() = default;
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;
  ~WeightMemory();

  // 64-byte aligned, with at least 64 bytes of readable memory behind it.
  Result<std::byte*> allocate(size_t bytes);
  size_t allocated() const;  // bytes given out so far
  void clear();              // unmaps all of it

 private:
  struct Slab {
    std::byte* data;
    size_t size;
    size_t used;
  };
  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;
};

}  // namespace heddle::cpu
