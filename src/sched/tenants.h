#pragma once
// Who shares a scheduler under the fair policy: a small index for each name that has sequences now. An index is used
// again once its last sequence is gone, so that names made up by clients take no memory for good. Loop thread only.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace heddle::sched {

class Tenants {
 public:
  struct Entered {
    uint32_t index = 0;
    bool fresh = false;  // had no sequences before: what was kept under this index belonged to somebody else
  };
  // One more sequence of the tenant.
  Entered enter(std::string_view name) {
    auto found = index_.find(name);
    const bool fresh = found == index_.end();
    if (fresh) {
      if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(entries_.size()));
        entries_.emplace_back();
      }
      found = index_.emplace(std::string(name), free_.back()).first;
      entries_[free_.back()] = {std::string(name), 0};
      free_.pop_back();
    }
    ++entries_[found->second].n_sequences;
    return {found->second, fresh};
  }
  void leave(uint32_t index) {
    Entry& entry = entries_[index];
    HEDDLE_CHECK_OP(entry.n_sequences, >, 0u);
    if (--entry.n_sequences > 0) return;
    index_.erase(entry.name);
    free_.push_back(index);
  }
  uint32_t n_lines() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  struct Entry {
    std::string name;
    uint32_t n_sequences = 0;
  };
  std::map<std::string, uint32_t, std::less<>> index_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace heddle::sched
