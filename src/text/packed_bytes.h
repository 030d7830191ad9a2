#pragma once
// Up to eight bytes as one number, for keys that are compared and hashed as numbers. Pure.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace heddle::text {

template <size_t N>
uint64_t load_bytes(const char* p) {
  uint64_t v = 0;
  std::memcpy(&v, p, N);
  return v;
}

// The n bytes at p, n <= 8, zero-padded. Reads nothing else: overlapping loads, no loop.
inline uint64_t pack_bytes(const char* p, size_t n) {
  if (n >= 8) return load_bytes<8>(p);
  if (n >= 4) return load_bytes<4>(p) | load_bytes<4>(p + n - 4) << (8 * (n - 4));
  if (n == 0) return 0;
  return load_bytes<1>(p) | load_bytes<1>(p + n / 2) << (8 * (n / 2)) | load_bytes<1>(p + n - 1) << (8 * (n - 1));
}

}  // namespace heddle::text
