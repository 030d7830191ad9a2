#pragma once
// How many threads may compute, and why: the smaller of the cores that this process may run on and its CPU quota. More
// threads than that are throttled by the kernel and wait for each other. Reads /proc and /sys once at start; any
// thread; never fails: a file that is absent or makes no sense sets no limit.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle::cpu {

struct CpuLimits {
  uint32_t cpus = 1;            // logical CPUs in the affinity mask
  uint32_t cores = 1;           // physical cores among them: two hyper-threads share one set of arithmetic units
  std::optional<double> quota;  // cgroup CPU quota in cores, the tightest on the path to the root
};

// The logical CPUs that this process may run on.
std::vector<uint32_t> affinity_cpus();

// `root` is put before every path ("" for the real machine); cgroup versions 1 and 2.
CpuLimits read_cpu_limits(std::span<const uint32_t> cpus, const std::string& root = "");

// The team's arrangement. Up to 4 cores the loop computes too, part of the time; above, it is left to its I/O.
struct ThreadPlan {
  uint32_t threads = 1;  // that compute, the loop among them if it is a member
  bool loop_is_member = true;
  std::string why;  // which limit won, for the start-up log
  uint32_t helpers() const { return loop_is_member ? threads - 1 : threads; }
};

// `wanted`: --threads, 0 = choose.
ThreadPlan plan_threads(const CpuLimits& limits, uint32_t wanted);

}  // namespace heddle::cpu
