#include "cpu/cpu_count.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

using namespace heddle::cpu;
namespace fs = std::filesystem;

namespace {

// A folder that plays the file system's root.
class FakeRoot {
 public:
  explicit FakeRoot(const std::map<std::string, std::string>& files) {
    std::string pattern = (fs::temp_directory_path() / "heddle_cpu_count_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    for (const auto& [name, text] : files) {
      fs::create_directories(fs::path(path_ + name).parent_path());
      std::ofstream(path_ + name) << text;
    }
  }
  ~FakeRoot() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<uint32_t> first_cpus(uint32_t n) {
  std::vector<uint32_t> cpus(n);
  for (uint32_t i = 0; i < n; ++i) cpus[i] = i;
  return cpus;
}

}  // namespace

TEST_CASE("without any file every CPU of the mask counts as a core and there is no quota") {
  const FakeRoot root({});
  const CpuLimits limits = read_cpu_limits(first_cpus(3), root.path());
  CHECK(limits.cpus == 3);
  CHECK(limits.cores == 3);
  CHECK_FALSE(limits.quota.has_value());
}

TEST_CASE("hyper-threads of one core count once, and only those inside the mask") {
  std::map<std::string, std::string> files;
  for (uint32_t cpu = 0; cpu < 8; ++cpu)
    files[fmt::format("/sys/devices/system/cpu/cpu{}/topology/core_cpus_list", cpu)] =
        fmt::format("{},{}\n", cpu % 4, cpu % 4 + 4);
  const FakeRoot root(files);
  CHECK(read_cpu_limits(first_cpus(8), root.path()).cores == 4);
  const std::vector<uint32_t> both_threads_of_one{1, 5};
  CHECK(read_cpu_limits(both_threads_of_one, root.path()).cores == 1);
  const std::vector<uint32_t> two_cores{1, 2};
  CHECK(read_cpu_limits(two_cores, root.path()).cores == 2);
}

TEST_CASE("the tightest version 2 quota between the process's group and the root wins") {
  const FakeRoot root({{"/proc/self/cgroup", "0::/pods/pod7/web\n"},
                       {"/sys/fs/cgroup/pods/pod7/web/cpu.max", "max 100000\n"},
                       {"/sys/fs/cgroup/pods/pod7/cpu.max", "250000 100000\n"},
                       {"/sys/fs/cgroup/pods/cpu.max", "800000 100000\n"}});
  const CpuLimits limits = read_cpu_limits(first_cpus(16), root.path());
  REQUIRE(limits.quota.has_value());
  CHECK(*limits.quota == 2.5);
}

TEST_CASE("a container that sees only its own group reads the quota at the mount's root") {
  const FakeRoot root({{"/proc/self/cgroup", "0::/docker/0123abcd\n"}, {"/sys/fs/cgroup/cpu.max", "150000 100000\n"}});
  const CpuLimits limits = read_cpu_limits(first_cpus(16), root.path());
  REQUIRE(limits.quota.has_value());
  CHECK(*limits.quota == 1.5);
}

TEST_CASE("a version 1 quota is read, and -1 is none") {
  const FakeRoot some({{"/proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/box\n"},
                       {"/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "765000\n"},
                       {"/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"}});
  const CpuLimits limits = read_cpu_limits(first_cpus(96), some.path());
  REQUIRE(limits.quota.has_value());
  CHECK(*limits.quota == 7.65);
  const FakeRoot none({{"/proc/self/cgroup", "1:cpu:/\n"},
                       {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                       {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  CHECK_FALSE(read_cpu_limits(first_cpus(96), none.path()).quota.has_value());
}

TEST_CASE("a quota that makes no sense sets no limit") {
  for (const char* text : {"", "100000", "0 100000", "100000 0", "x y", "-5 100000", "99999999999999999999 1"}) {
    const FakeRoot root({{"/proc/self/cgroup", "0::/\nnonsense\n::\n"}, {"/sys/fs/cgroup/cpu.max", text}});
    CHECK_MESSAGE(!read_cpu_limits(first_cpus(2), root.path()).quota.has_value(), text);
  }
}

TEST_CASE("the thread count is the smaller of cores and the quota rounded down, and says which limit won") {
  const ThreadPlan quota = plan_threads({.cpus = 96, .cores = 96, .quota = 7.65}, 0);
  CHECK(quota.threads == 6);  // seven cores, one of them for I/O
  CHECK_FALSE(quota.loop_is_member);
  CHECK(quota.why.find("quota of 7.65") != std::string::npos);
  const ThreadPlan small = plan_threads({.cpus = 16, .cores = 16, .quota = 1.5}, 0);
  CHECK(small.threads == 1);
  CHECK(small.loop_is_member);
  CHECK(small.helpers() == 0);
  CHECK(plan_threads({.cpus = 16, .cores = 16, .quota = 0.4}, 0).threads == 1);
  const ThreadPlan mask = plan_threads({.cpus = 2, .cores = 2, .quota = 64.0}, 0);
  CHECK(mask.threads == 2);
  CHECK(mask.helpers() == 1);
  CHECK(mask.why.find("affinity") != std::string::npos);
  CHECK(mask.why.find("quota") == std::string::npos);
}

TEST_CASE("up to four cores the loop is one of the computing threads, above it is not") {
  const ThreadPlan four = plan_threads({.cpus = 4, .cores = 4, .quota = {}}, 0);
  CHECK(four.loop_is_member);
  CHECK(four.threads == 4);
  CHECK(four.helpers() == 3);
  const ThreadPlan five = plan_threads({.cpus = 5, .cores = 5, .quota = {}}, 0);
  CHECK_FALSE(five.loop_is_member);
  CHECK(five.threads == 4);
  CHECK(five.helpers() == 4);
}

TEST_CASE("a wanted thread count is taken as it is") {
  const ThreadPlan one = plan_threads({.cpus = 2, .cores = 2, .quota = {}}, 1);
  CHECK(one.threads == 1);
  CHECK(one.helpers() == 0);
  CHECK(one.why.find("--threads") != std::string::npos);
  CHECK(plan_threads({.cpus = 16, .cores = 16, .quota = {}}, 2).helpers() == 2);
}

TEST_CASE("this process may run on at least one CPU") { CHECK_FALSE(affinity_cpus().empty()); }
