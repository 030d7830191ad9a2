#include "sched/prefix_cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace heddle::sched {
namespace {
constexpr uint32_t kNone = UINT32_MAX;
}

PrefixCache::PrefixCache(uint32_t n_blocks, uint32_t block_size)
    : block_size_(block_size),
      mask_(std::bit_ceil(std::max(n_blocks, 1u)) - 1),
      buckets_(size_t{mask_} + 1, kNone),
      slots_(n_blocks),
      tokens_(size_t{n_blocks} * block_size) {}

bool PrefixCache::matches(uint32_t index, const Key& key) const {
  const Slot& slot = slots_[index];
  if (slot.hash != key.hash || slot.parent != key.parent) return false;
  const auto first = tokens_.begin() + static_cast<ptrdiff_t>(size_t{index} * block_size_);
  if (!std::equal(key.tokens.begin(), key.tokens.end(), first)) return false;
  return key.parent != 0 || slot.domain == *key.domain || *slot.domain == **key.domain;
}

std::optional<PrefixCache::Entry> PrefixCache::find(const Key& key) const {
  HEDDLE_CHECK_OP(key.tokens.size(), ==, block_size_);
  for (uint32_t i = buckets_[bucket(key.hash)]; i != kNone; i = slots_[i].next)
    if (matches(i, key)) return Entry{BlockId(i), slots_[i].content};
  return std::nullopt;
}

PrefixCache::Inserted PrefixCache::insert(BlockId block, const Key& key) {
  if (const std::optional<Entry> same = find(key)) return {same->content, false, same->block};
  Slot& slot = slots_[block.value];
  HEDDLE_CHECK_OP(slot.content, ==, 0u);
  slot.hash = key.hash;
  slot.content = next_content_++;
  slot.parent = key.parent;
  if (key.parent == 0) slot.domain = *key.domain;
  std::copy(key.tokens.begin(), key.tokens.end(),
            tokens_.begin() + static_cast<ptrdiff_t>(size_t{block.value} * block_size_));
  uint32_t& head = buckets_[bucket(key.hash)];
  slot.next = head;
  head = block.value;
  ++n_entries_;
  return {slot.content, true, block};
}

void PrefixCache::erase(BlockId block) {
  Slot& slot = slots_[block.value];
  HEDDLE_CHECK_OP(slot.content, !=, 0u);
  uint32_t* link = &buckets_[bucket(slot.hash)];
  while (*link != block.value) {
    HEDDLE_CHECK(*link != kNone);
    link = &slots_[*link].next;
  }
  *link = slot.next;
  slot.content = slot.parent = 0;
  slot.domain.reset();
  --n_entries_;
}

void PrefixCache::clear() {
  std::ranges::fill(buckets_, kNone);
  for (Slot& slot : slots_) {
    slot.content = slot.parent = 0;
    slot.domain.reset();
  }
  n_entries_ = 0;
}

}  // namespace heddle::sched
