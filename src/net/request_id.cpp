#include "net/request_id.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace heddle::net {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a bijection of a counter, so ids of one process never repeat.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t random_word() {
  std::random_device device;
  const uint64_t high = device();
  return high << 32 | device();
}

}  // namespace

std::string make_request_id() {
  static const uint64_t process = random_word();
  static uint64_t counter = random_word();
  return fmt::format("{:016x}{:016x}", process, mix(++counter));
}

}  // namespace heddle::net
