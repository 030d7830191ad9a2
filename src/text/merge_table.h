#pragma once
// The merge list as a hash table: pair of tokens -> place in the list and the token made. Filled at load, then const.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/ids.h"
#include "text/bpe_merge.h"

namespace heddle::text {

class MergeTable {
 public:
  // Room for n pairs.
  explicit MergeTable(size_t n)
      : shift_(64 - std::countr_zero(std::bit_ceil(n + n / 2 + 2))),
        mask_(std::bit_ceil(n + n / 2 + 2) - 1),
        slots_(static_cast<Slot*>(std::calloc(mask_ + 1, sizeof(Slot)))) {
    if (!slots_) throw std::bad_alloc();
  }

  // The first of equal pairs keeps its place.
  void insert(TokenId left, TokenId right, Merge merge) {
    const uint64_t key = pack(left, right);
    for (size_t i = index(key);; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.key == key) return;
      if (slot.key != 0) continue;
      slot = {key, merge.rank, merge.id};
      return;
    }
  }

  Merge find(TokenId left, TokenId right) const {
    const uint64_t key = pack(left, right);
    for (size_t i = index(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return {slot.rank, slot.id};
      if (slot.key == 0) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key;  // 0: empty
    uint32_t rank;
    TokenId id;
  };
  struct Free {
    void operator()(Slot* p) const { std::free(p); }
  };

  static uint64_t pack(TokenId left, TokenId right) {
    return static_cast<uint64_t>(left + 1) << 32 | static_cast<uint64_t>(right + 1);
  }
  size_t index(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

  int shift_;
  size_t mask_;
  std::unique_ptr<Slot[], Free> slots_;
};

}  // namespace heddle::text
