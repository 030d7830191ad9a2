#include "cpu/cpu_count.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace heddle::cpu {
namespace {

constexpr uint32_t kLoopComputesUpTo = 4;  // cores

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ratio(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Version 2: "max 100000" or "150000 100000".
std::optional<double> quota_v2(const std::string& folder) {
  const auto line = first_line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const size_t space = line->find(' ');
  if (space == std::string::npos) return std::nullopt;
  return ratio(parse_number(line->substr(0, space)), parse_number(line->substr(space + 1)));
}

// Version 1: two files, a quota of -1 is none.
std::optional<double> quota_v1(const std::string& folder) {
  const auto quota = first_line(folder + "/cpu.cfs_quota_us");
  const auto period = first_line(folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return ratio(parse_number(*quota), parse_number(*period));
}

void tighten(std::optional<double>& limit, std::optional<double> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// The group and its ancestors, each of which may hold a quota. In a container the path may name a group of the host
// that is not visible; the mount's root is then the container's own group.
template <class Read>
void tighten_along(std::optional<double>& limit, const std::string& mount, std::string path, Read read) {
  for (;;) {
    tighten(limit, read(mount + path));
    const size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

bool lists_cpu_controller(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers = comma == std::string_view::npos ? std::string_view{} : controllers.substr(comma + 1);
  }
  return false;
}

// Lines of /proc/self/cgroup: "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
std::optional<double> read_quota(const std::string& root) {
  std::optional<double> limit;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string base = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      for (const char* mount : {"", "/unified"}) tighten_along(limit, base + mount, path, quota_v2);
    } else if (lists_cpu_controller(controllers)) {
      for (const std::string& mount : {"/" + controllers, std::string("/cpu")})
        tighten_along(limit, base + mount, path, quota_v1);
    }
  }
  return limit;
}

uint32_t count_cores(std::span<const uint32_t> cpus, const std::string& root) {
  std::set<std::string> cores;
  for (const uint32_t cpu : cpus) {
    const std::string topology = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, cpu);
    auto siblings = first_line(topology + "core_cpus_list");
    if (!siblings) siblings = first_line(topology + "thread_siblings_list");
    cores.insert(siblings ? *siblings : fmt::format("cpu {}", cpu));
  }
  return std::max<uint32_t>(1, static_cast<uint32_t>(cores.size()));
}

}  // namespace

std::vector<uint32_t> affinity_cpus() {
  // The kernel's mask may be wider than cpu_set_t's 1024: ask with a growing buffer.
  for (size_t n = 1024; n <= (1u << 18); n *= 2) {
    cpu_set_t* set = CPU_ALLOC(n);
    const size_t bytes = CPU_ALLOC_SIZE(n);
    CPU_ZERO_S(bytes, set);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    std::vector<uint32_t> cpus;
    for (size_t cpu = 0; ok && cpu < n; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<uint32_t>(cpu));
    CPU_FREE(set);
    if (ok) return cpus;
  }
  return {0};
}

CpuLimits read_cpu_limits(std::span<const uint32_t> cpus, const std::string& root) {
  CpuLimits limits;
  limits.cpus = std::max<uint32_t>(1, static_cast<uint32_t>(cpus.size()));
  limits.cores = count_cores(cpus, root);
  limits.quota = read_quota(root);
  return limits;
}

ThreadPlan plan_threads(const CpuLimits& limits, uint32_t wanted) {
  ThreadPlan plan;
  uint32_t cores = limits.cores;
  std::string limit = limits.cores < limits.cpus
                          ? fmt::format("{} cores under the {} CPUs of the affinity mask", limits.cores, limits.cpus)
                          : fmt::format("{} cores in the affinity mask", limits.cores);
  if (limits.quota && std::floor(*limits.quota) < limits.cores) {
    cores = std::max(1u, static_cast<uint32_t>(*limits.quota));
    limit = fmt::format("a cgroup quota of {:.2f} cores, rounded down (the affinity mask has {})", *limits.quota,
                        limits.cores);
  }
  plan.loop_is_member = cores <= kLoopComputesUpTo;
  if (wanted > 0) {
    plan.threads = wanted;
    plan.why = fmt::format("as --threads says; {}", limit);
  } else {
    plan.threads = plan.loop_is_member ? cores : cores - 1;
    plan.why = plan.loop_is_member ? limit : fmt::format("{}, one of them left to I/O", limit);
  }
  return plan;
}

}  // namespace heddle::cpu
