#pragma once
// Bytes to token id: open addressing over slots that hold the first eight bytes of the key, so that a short key is
// compared without touching the arena. Filled at load, then const; keys' bytes belong to the Vocab.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

#include "base/ids.h"
#include "text/packed_bytes.h"
#include "text/vocab.h"

namespace heddle::text {

// The first eight bytes of a key, zero-padded, and a hash of all of it.
struct TokenKey {
  uint64_t head;
  uint64_t hash;

  explicit TokenKey(std::string_view key) : head(pack_bytes(key.data(), key.size())) {
    constexpr uint64_t mix = 0x9E3779B97F4A7C15u;
    const size_t n = key.size();
    uint64_t tail = 0;
    if (n > 8) {
      for (size_t at = 8; at + 8 < n; at += 8) tail = std::rotl((tail ^ load_bytes<8>(key.data() + at)) * mix, 23);
      tail ^= load_bytes<8>(key.data() + n - 8);
    }
    const uint64_t h = (head ^ std::rotl(tail * mix, 31) ^ n) * mix;
    hash = (h ^ (h >> 32)) * mix;
    hash ^= hash >> 29;
  }
};

class TokenMap {
 public:
  // Room for n keys, n at most vocab.size(). The vocabulary must stay where it is.
  TokenMap(const Vocab& vocab, size_t n)
      : vocab_(&vocab),
        mask_(std::bit_ceil(n + n / 2 + 1) - 1),
        slots_(static_cast<Slot*>(std::calloc(mask_ + 1, sizeof(Slot)))) {
    if (!slots_) throw std::bad_alloc();
  }

  // Keeps the first id of equal keys.
  void insert(TokenId id) {
    const std::string_view key = vocab_->token_bytes(id);
    const TokenKey k(key);
    for (size_t i = k.hash & mask_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.id_plus_1 == 0) {
        slot = {k.head, static_cast<uint32_t>(id + 1), static_cast<uint32_t>(key.size())};
        return;
      }
      if (same(slot, k, key)) return;
    }
  }

  // -1 if there is none.
  TokenId find(std::string_view key) const {
    const TokenKey k(key);
    for (size_t i = k.hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id_plus_1 == 0) return -1;
      if (same(slot, k, key)) return static_cast<TokenId>(slot.id_plus_1) - 1;
    }
  }

 private:
  struct Slot {
    uint64_t head;
    uint32_t id_plus_1;  // 0: empty
    uint32_t size;
  };
  struct Free {
    void operator()(Slot* p) const { std::free(p); }
  };

  bool same(const Slot& slot, const TokenKey& k, std::string_view key) const {
    if (slot.head != k.head || slot.size != key.size()) return false;
    return key.size() <= 8 || vocab_->token_bytes(static_cast<TokenId>(slot.id_plus_1) - 1) == key;
  }

  const Vocab* vocab_;
  size_t mask_;
  std::unique_ptr<Slot[], Free> slots_;  // calloc: zero pages cost nothing until touched
};

}  // namespace heddle::text
