#include "cpu/token_counts.h"

#include <algorithm>

namespace heddle::cpu {
namespace {

// Fibonacci hashing: ids are often consecutive, and the high bits of the product spread them.
size_t bucket(TokenId token, size_t size) {
  return static_cast<size_t>((static_cast<uint64_t>(static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u) >> 32) &
         (size - 1);
}

}  // namespace

void TokenCounts::clear() {
  entries_.clear();
  std::fill(table_.begin(), table_.end(), 0u);
}

TokenCounts::Entry& TokenCounts::find_or_add(TokenId token) {
  if (2 * (entries_.size() + 1) > table_.size()) grow();
  size_t at = bucket(token, table_.size());
  for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
    Entry& entry = entries_[table_[at] - 1];
    if (entry.token == token) return entry;
  }
  entries_.push_back({token, 0, false});
  table_[at] = static_cast<uint32_t>(entries_.size());
  return entries_.back();
}

void TokenCounts::grow() {
  table_.assign(std::max<size_t>(64, table_.size() * 2), 0u);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t at = bucket(entries_[i].token, table_.size());
    while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = static_cast<uint32_t>(i + 1);
  }
}

}  // namespace heddle::cpu
