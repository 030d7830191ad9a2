#pragma once
// Memory for what ops leave for their commands (attention plans, partial results), recycled by whole steps: what was
// taken since the last close() is free again once the commands appended before that close have run. Loop thread only.
// After the first steps it allocates nothing.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace heddle::cpu {

class StepMemory {
 public:
  // 64-byte aligned, uninitialised. `n_completed`: of the team.
  std::byte* take(size_t bytes, uint64_t n_completed);
  template <class T>
  T* take(size_t n, uint64_t n_completed) {
    return reinterpret_cast<T*>(take(n * sizeof(T), n_completed));
  }
  // What was taken so far is in use until `n_commands` commands have run.
  void close(uint64_t n_commands);
  size_t allocated() const;
  void clear() { pages_.clear(); }  // only when nothing taken is in use

 private:
  static constexpr size_t kPageBytes = size_t{256} << 10;
  static constexpr uint64_t kOpen = ~uint64_t{0};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  struct Page {
    std::unique_ptr<std::byte[], Free> data;
    size_t size = 0;
    size_t used = 0;
    uint64_t free_after = 0;  // commands; kOpen while its step is being appended
  };
  std::vector<Page> pages_;
  size_t current_ = 0;
};

}  // namespace heddle::cpu
