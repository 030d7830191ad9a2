#pragma once
// Which tokens a sequence holds, for the penalties: how often each was generated and whether the prompt has it. Sparse,
// since a sequence holds few of the vocabulary's ids: entries in order of first appearance, found through an open
// hash table. Owner: a slot of the sampler; touched in queue order only. Memory is kept for the slot's next sequence.
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace heddle::cpu {

class TokenCounts {
 public:
  struct Entry {
    TokenId token = -1;
    uint32_t n_generated = 0;
    bool in_prompt = false;
  };

  void clear();
  void add_prompt(TokenId token) { find_or_add(token).in_prompt = true; }
  void add_generated(TokenId token) { ++find_or_add(token).n_generated; }
  std::span<const Entry> entries() const { return entries_; }

 private:
  Entry& find_or_add(TokenId token);
  void grow();

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;  // 0: free, else index into entries_ + 1; size is a power of two, at most half full
};

}  // namespace heddle::cpu
