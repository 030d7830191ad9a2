#include "sched/prefix_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace heddle::sched {
namespace {

// Constants without structure: fractions of the square roots of 2, 3, 5 and 7, made odd.
constexpr uint64_t kLow = 0x6A09E667F3BCC909u, kHigh = 0xBB67AE8584CAA73Bu;
constexpr uint64_t kLowFactor = 0x3C6EF372FE94F82Bu, kHighFactor = 0xA54FF53A5F1D36F1u;

uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Two chains over the same words, each word at different bits of either; finish() lets each depend on both.
struct Mixer {
  uint64_t low, high;
  void word(uint64_t w) {
    low = fold(low ^ w, kLowFactor) + w;
    high = fold(high ^ std::rotl(w, 32), kHighFactor) ^ w;
  }
  void text(uint64_t position, std::string_view bytes) {
    word(position);
    word(bytes.size());
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t w = 0;
      std::memcpy(&w, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
      word(w);
    }
  }
  Hash128 finish() const {
    return {fold(low ^ kLow, std::rotl(high, 17) ^ kHighFactor), fold(high ^ kHigh, std::rotl(low, 29) ^ kLowFactor)};
  }
};

}  // namespace

Hash128 hash_domain(uint64_t seed, const PrefixDomain& domain) {
  Mixer mixer{seed ^ kLow, seed ^ kHigh};
  mixer.text(0, domain.model);
  mixer.text(1, domain.salt);
  mixer.text(2, domain.adapter);
  return mixer.finish();
}

Hash128 hash_block(const Hash128& parent, std::span<const TokenId> tokens) {
  Mixer mixer{parent.low ^ kHigh, parent.high ^ kLow};
  mixer.word(tokens.size());
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t first = static_cast<uint32_t>(tokens[i]);
    const uint64_t second = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0;
    mixer.word(first | second << 32);
  }
  return mixer.finish();
}

}  // namespace heddle::sched
