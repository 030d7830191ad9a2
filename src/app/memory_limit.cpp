#include "app/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace heddle::app {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // "max" means no limit
  return number;
}

std::optional<uint64_t> mem_available(const std::string& root) {
  std::ifstream file(root + "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

// The tightest of the cgroup v2 limits on the way from this process's group to the root, less what is in use there.
// File cache can be given back, so it does not count as used.
std::optional<uint64_t> cgroup_room(const std::string& root) {
  std::ifstream file(root + "proc/self/cgroup");
  std::optional<uint64_t> room;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string group = line.substr(3);
    while (true) {
      const std::string directory = root + "sys/fs/cgroup" + group + (group == "/" ? "" : "/");
      const auto limit = read_number(directory + "memory.max");
      if (limit) {
        uint64_t used = read_number(directory + "memory.current").value_or(0);
        std::ifstream stat(directory + "memory.stat");
        std::string name;
        for (uint64_t value = 0; stat >> name >> value;) {
          if (name == "inactive_file" || name == "active_file") used -= std::min(used, value);
        }
        const uint64_t left = *limit > used ? *limit - used : 0;
        room = room ? std::min(*room, left) : left;
      }
      if (group == "/" || group.empty()) break;
      group = group.substr(0, group.find_last_of('/'));
      if (group.empty()) group = "/";
    }
  }
  return room;
}

}  // namespace

MemoryLimit read_memory_limit(const std::string& root) {
  const auto available = mem_available(root);
  const auto cgroup = cgroup_room(root);
  if (cgroup && (!available || *cgroup < *available)) return {*cgroup, "cgroup limit"};
  if (available) return {*available, "available memory"};
  return {};
}

}  // namespace heddle::app
