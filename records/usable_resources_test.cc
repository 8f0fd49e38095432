#include "records/usable_resources.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "records/run_origin.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr double kNoQuota = std::numeric_limits<double>::infinity();
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The files of a system and the resulting limits.
struct ControlGroupCase {
  const char* name;
  std::vector<std::pair<std::string, std::string>> files;  // path and text
  double cores = kNoQuota;
  int64_t memory_bytes = kNoLimit;
};

const ControlGroupCase kControlGroups[] = {
    {"WithoutGroupsNothingIsLimited", {}},
    {"Version2TakesTheLowestLimitOnTheWayUp",
     {{"/proc/self/cgroup", "0::/job/step\n"},
      {"/proc/self/mountinfo",
       "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 "
       "rw,nsdelegate\n"},
      {"/sys/fs/cgroup/job/step/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/job/cpu.max", "150000 100000\n"},
      {"/sys/fs/cgroup/job/step/memory.max", "3000000\n"},
      {"/sys/fs/cgroup/job/memory.max", "max\n"}},
     1.5,
     3'000'000},
    {"Version1HasAHierarchyPerController",
     {{"/proc/self/cgroup",
       "9:name=systemd:/a\n4:memory:/a\n2:cpuset:/\n1:cpu,cpuacct:/b\n0::/\n"},
      {"/proc/self/mountinfo",
       "30 29 0:27 / /proc rw - proc proc rw\n"
       "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
       "35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
       "41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n"},
      {"/cg/cpu/cpu.cfs_quota_us", "-1\n"},
      {"/cg/cpu/cpu.cfs_period_us", "100000\n"},
      {"/cg/cpu/b/cpu.cfs_quota_us", "400000\n"},
      {"/cg/cpu/b/cpu.cfs_period_us", "100000\n"},
      {"/cg/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/cg/memory/a/memory.limit_in_bytes", "4096\n"}},
     4,
     4096},
    // Docker with version 1: the container's group is at the mount point, and
    // /proc/self/cgroup uses the host's name for it.
    {"AContainerSeesItsGroupAtTheMountPoint",
     {{"/proc/self/cgroup", "4:memory:/docker/1f\n1:cpu:/docker/1f/child\n"},
      {"/proc/self/mountinfo",
       "32 31 0:29 /docker/1f /cg/cpu ro - cgroup cgroup rw,cpu\n"
       "35 31 0:32 /docker/1f /cg/memory ro - cgroup cgroup rw,memory\n"},
      {"/cg/cpu/cpu.cfs_quota_us", "200000\n"},
      {"/cg/cpu/cpu.cfs_period_us", "100000\n"},
      {"/cg/cpu/child/cpu.cfs_quota_us", "50000\n"},
      {"/cg/cpu/child/cpu.cfs_period_us", "100000\n"},
      {"/cg/memory/memory.limit_in_bytes", "8192\n"}},
     0.5,
     8192},
    {"AGroupOutsideOfTheNamespaceIsThatOfTheMountPoint",
     {{"/proc/self/cgroup", "0::/../other\n"},
      {"/proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/cpu.max", "300000 100000\n"},
      {"/cg/../other/cpu.max", "100000 100000\n"}},
     3},
    {"BrokenFilesLimitNothing",
     {{"/proc/self/cgroup", "0::nonsense\nnonsense\n"},
      {"/proc/self/mountinfo",
       "\nnonsense - cgroup2\n31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n"},
      {"/cg/cpu.max", "\n"},
      {"/cg/memory.max", "-7\n"}}}};

TEST(ControlGroupTest, LimitsAreThoseOfTheFiles) {
  for (const ControlGroupCase& each : kControlGroups) {
    SCOPED_TRACE(each.name);
    const std::string root = testing::TempDir() + "/" + each.name;
    fs::remove_all(root);
    for (const auto& [path, text] : each.files) {
      fs::create_directories(fs::path(root + path).parent_path());
      std::ofstream(root + path) << text;
    }
    const ControlGroupLimits limits = ReadControlGroupLimits(root);
    EXPECT_EQ(limits.cores, each.cores);
    EXPECT_EQ(limits.memory_bytes, each.memory_bytes);
  }
}

// Pins the calling thread to the first CPU of its mask until destroyed.
class PinnedThread {
 public:
  PinnedThread() {
    sched_getaffinity(0, sizeof(all_), &all_);
    cpu_set_t first;
    CPU_ZERO(&first);
    for (int cpu = 0; CPU_COUNT(&first) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all_)) CPU_SET(cpu, &first);
    }
    sched_setaffinity(0, sizeof(first), &first);
  }
  ~PinnedThread() { sched_setaffinity(0, sizeof(all_), &all_); }

 private:
  cpu_set_t all_;
};

TEST(UsableCores, FollowTheAffinityMask) {
  const PinnedThread pinned;
  EXPECT_EQ(UsableCores(), 1);
  EXPECT_EQ(CollectHostInfo().cores, 1);
}

TEST(UsableCores, OfSeveralProcessesAreTheirUnion) {
  const int64_t all = UsableCores();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  {
    const PinnedThread pinned;
    EXPECT_EQ(UsableCores({child}), all);
    EXPECT_EQ(UsableCores({0, -1}), 1);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(UsableMemoryBytes, IsAtMostThatOfTheMachine) {
  const int64_t machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  EXPECT_GT(UsableMemoryBytes(), 1 << 20);
  EXPECT_LE(UsableMemoryBytes(), machine);
  EXPECT_EQ(UsableMemoryBytes(), CollectHostInfo().memory_bytes);
}

}  // namespace
}  // namespace rankwise
