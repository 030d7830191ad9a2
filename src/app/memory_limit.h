#pragma once
// How much memory this process may still take: what the kernel has available, and what the cgroup leaves.
#include <cstdint>
#include <string>

namespace heddle::app {

struct MemoryLimit {
  uint64_t bytes = 0;  // 0: unknown
  std::string reason;  // "available memory" or "cgroup limit"
};

// `root` is the file system's root; tests give another.
MemoryLimit read_memory_limit(const std::string& root = "/");

}  // namespace heddle::app
