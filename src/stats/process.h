#pragma once
// What the kernel says about this process. Each field is 0 where /proc does not tell.
#include <cstdint>

namespace heddle::stats {

struct ProcessSnapshot {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0, virtual_bytes = 0;
  double start_time = 0;  // Unix seconds
  uint64_t open_fds = 0, max_fds = 0;
};

ProcessSnapshot read_process();

}  // namespace heddle::stats
