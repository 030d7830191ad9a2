#pragma once
// Remembers the ids of short words: text repeats its words, and most of them come out of here. Direct-mapped, 256 KiB,
// one a thread; it holds one tokenizer's words at a time. Only speed depends on it, never a result.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/packed_bytes.h"

namespace heddle::text {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15;
  static constexpr size_t kMaxIds = 3;

  // A number for a new tokenizer, from 1.
  static uint64_t next_tokenizer();

  // This thread's cache, emptied if another tokenizer used it last.
  static WordCache& of_thread(uint64_t tokenizer);

  struct Key {
    uint64_t head;  // the first eight bytes, zero-padded
    uint64_t tail;  // the other seven, and the length on top, never 0

    // 1 to kMaxBytes bytes.
    explicit Key(std::string_view word)
        : head(pack_bytes(word.data(), word.size())),
          tail((word.size() > 8 ? pack_bytes(word.data() + 8, word.size() - 8) : 0) | static_cast<uint64_t>(word.size())
                                                                                          << 56) {}
  };

  // Appends the word's ids if it is known.
  bool append(const Key& key, std::vector<TokenId>& ids) const {
    const Entry& entry = entries_[index(key)];
    if (entry.head != key.head || entry.tail != key.tail) return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.n);
    return true;
  }

  void store(const Key& key, std::span<const TokenId> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[index(key)];
    entry.head = key.head;
    entry.tail = key.tail;
    entry.n = static_cast<uint32_t>(ids.size());
    std::ranges::copy(ids, entry.ids.begin());
  }

 private:
  struct Entry {
    uint64_t head = 0;
    uint64_t tail = 0;  // 0: empty
    std::array<TokenId, kMaxIds> ids{};
    uint32_t n = 0;
  };
  static constexpr size_t kBits = 13;

  static size_t index(const Key& key) {
    constexpr uint64_t mix = 0x9E3779B97F4A7C15u;
    return ((key.head ^ (key.tail * mix) >> 7) * mix) >> (64 - kBits);
  }

  uint64_t tokenizer_ = 0;
  std::array<Entry, 1u << kBits> entries_{};
};

}  // namespace heddle::text
