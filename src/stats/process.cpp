#include "stats/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>

namespace heddle::stats {
namespace {

double seconds_of(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

// Unix time at which this process started: now, less the age that /proc/self/stat gives against the uptime.
double start_time() {
  std::FILE* stat = std::fopen("/proc/self/stat", "re");
  if (stat == nullptr) return 0;
  char text[2048];
  const size_t size = std::fread(text, 1, sizeof text - 1, stat);
  std::fclose(stat);
  text[size] = 0;
  const char* after_name = std::strrchr(text, ')');  // the name may hold blanks
  unsigned long long ticks = 0;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &ticks) != 1)
    return 0;
  timespec boot{};
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_REALTIME, &now);
  const double age = static_cast<double>(boot.tv_sec) + static_cast<double>(boot.tv_nsec) * 1e-9 -
                     static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - age;
}

uint64_t count_fds() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  uint64_t n = 0;
  while (const dirent* entry = readdir(directory)) n += entry->d_name[0] != '.';
  closedir(directory);
  return n > 0 ? n - 1 : 0;  // less the directory's own
}

}  // namespace

ProcessSnapshot read_process() {
  ProcessSnapshot snapshot;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    snapshot.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  if (std::FILE* statm = std::fopen("/proc/self/statm", "re")) {
    unsigned long long total = 0;
    unsigned long long resident = 0;
    if (std::fscanf(statm, "%llu %llu", &total, &resident) == 2) {
      const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
      snapshot.virtual_bytes = total * page;
      snapshot.resident_bytes = resident * page;
    }
    std::fclose(statm);
  }
  static const double started = start_time();
  snapshot.start_time = started;
  snapshot.open_fds = count_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) snapshot.max_fds = limit.rlim_cur;
  return snapshot;
}

}  // namespace heddle::stats
