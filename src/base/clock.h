#pragma once
// Time. Intervals come from the monotonic clock only (invariant monotonic-intervals); the wall clock stamps arrivals
// for people and for fields such as `created`.
#include <chrono>

namespace heddle {

using Monotonic = std::chrono::steady_clock;
using MonotonicTime = Monotonic::time_point;
using WallTime = std::chrono::system_clock::time_point;

// When a request was read off the wire (or handed in by its caller), on both clocks.
struct Arrival {
  MonotonicTime monotonic{};
  WallTime wall{};
  static Arrival now() { return {Monotonic::now(), std::chrono::system_clock::now()}; }
};

inline double seconds(Monotonic::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace heddle
