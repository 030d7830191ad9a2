#pragma once
// Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011): the i-th number of a stream is a pure function of key and counter, so a draw depends neither
// on order nor on neighbours. Pure; any thread.
#include <array>
#include <cstdint>

namespace heddle::cpu {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The draw for token `index` of a sequence with this seed: uniform in [0, 1), 53 bits.
constexpr double philox_uniform(uint64_t seed, uint32_t index) {
  const auto r = philox4x32({index, 0, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{r[0]} << 21) | (r[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace heddle::cpu
