#include "records/usable_resources.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

// sched_getaffinity fails if the set has fewer CPUs than the machine.
constexpr int kMostCpus = 1 << 15;

class CpuSet {
 public:
  CpuSet() : set_(CPU_ALLOC(kMostCpus)) { CPU_ZERO_S(bytes(), set_); }
  ~CpuSet() { CPU_FREE(set_); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  // Adds the affinity mask of the first thread of `process`.
  void Add(pid_t process) {
    CpuSet mask;
    if (sched_getaffinity(process, bytes(), mask.set_) == 0)
      CPU_OR_S(bytes(), set_, set_, mask.set_);
  }
  int count() const { return CPU_COUNT_S(bytes(), set_); }

 private:
  static size_t bytes() { return CPU_ALLOC_SIZE(kMostCpus); }
  cpu_set_t* const set_;
};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A mounted control-group hierarchy, as seen by this process.
struct Hierarchy {
  std::string controllers;  // of version 1: "cpu,cpuacct"; "" in version 2
  std::string mount_point;
  std::string mounted;  // group at the mount point: "/" or "/docker/1f"
};

// Parses a line of mountinfo (proc(5)): "32 31 0:29 /docker/1f
// /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct".
std::optional<Hierarchy> ParseMount(absl::string_view line) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(line, absl::MaxSplits(" - ", 1));
  const std::vector<std::string> place = absl::StrSplit(halves.first, ' ');
  const std::vector<std::string> type = absl::StrSplit(halves.second, ' ');
  if (place.size() < 5 || type.size() < 3) return std::nullopt;
  if (type[0] == "cgroup2") return Hierarchy{"", place[4], place[3]};
  if (type[0] == "cgroup") return Hierarchy{type[2], place[4], place[3]};
  return std::nullopt;
}

bool Lists(absl::string_view names, absl::string_view name) {
  return absl::c_linear_search(
      std::vector<absl::string_view>(absl::StrSplit(names, ',')), name);
}

// Returns this process's group for `controller` from a line of
// /proc/self/cgroup: "4:cpu,cpuacct:/docker/1f", or "0::/user.slice" in version
// 2.
std::optional<std::string> GroupIn(const std::string& line,
                                   const Hierarchy& hierarchy,
                                   absl::string_view controller) {
  const std::vector<std::string> fields =
      absl::StrSplit(line, absl::MaxSplits(':', 2));
  if (fields.size() != 3) return std::nullopt;
  const bool is_it = hierarchy.controllers.empty()
                         ? fields[0] == "0" && fields[1].empty()
                         : Lists(fields[1], controller);
  return is_it ? std::optional(fields[2]) : std::nullopt;
}

// Returns the mounted folders of the group and its ancestors, innermost first.
std::vector<std::string> Folders(const Hierarchy& hierarchy,
                                 absl::string_view group) {
  if (hierarchy.mounted != "/") absl::ConsumePrefix(&group, hierarchy.mounted);
  // Limits of groups outside the mounted part cannot be read.
  if (!absl::StartsWith(group, "/") || absl::StrContains(group, "/.."))
    group = "";
  std::vector<std::string> folders;
  for (absl::string_view left = group; left.size() > 1;
       left = left.substr(0, left.rfind('/'))) {
    folders.push_back(absl::StrCat(hierarchy.mount_point, left));
  }
  folders.push_back(hierarchy.mount_point);
  return folders;
}

void Lower(double quota, double period, ControlGroupLimits& limits) {
  if (quota > 0 && period > 0)
    limits.cores = std::min(limits.cores, quota / period);
}

// Reads "50000 100000" or "max 100000" (microseconds) in version 2.
void ReadCores(const std::string& folder, bool version2,
               ControlGroupLimits& limits) {
  double quota = 0, period = 0;
  if (version2) {
    const std::vector<std::string> fields =
        absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
    if (fields.size() == 2 && absl::SimpleAtod(fields[0], &quota) &&
        absl::SimpleAtod(fields[1], &period)) {
      Lower(quota, period, limits);
    }
  } else if (absl::SimpleAtod(FirstLine(folder + "/cpu.cfs_quota_us"),
                              &quota) &&
             absl::SimpleAtod(FirstLine(folder + "/cpu.cfs_period_us"),
                              &period)) {
    Lower(quota, period, limits);  // a quota of -1 means no limit
  }
}

void ReadMemory(const std::string& folder, bool version2,
                ControlGroupLimits& limits) {
  int64_t bytes = 0;
  const char* const name = version2 ? "/memory.max" : "/memory.limit_in_bytes";
  if (absl::SimpleAtoi(FirstLine(folder + name), &bytes) && bytes > 0)
    limits.memory_bytes = std::min(limits.memory_bytes, bytes);
}

void Read(const std::string& root, const Hierarchy& hierarchy,
          ControlGroupLimits& limits) {
  std::ifstream groups(root + "/proc/self/cgroup");
  const bool version2 = hierarchy.controllers.empty();
  for (std::string line; std::getline(groups, line);) {
    for (const auto& [controller, read] :
         {std::pair("cpu", &ReadCores), std::pair("memory", &ReadMemory)}) {
      if (!version2 && !Lists(hierarchy.controllers, controller)) continue;
      const auto group = GroupIn(line, hierarchy, controller);
      if (!group.has_value()) continue;
      for (const std::string& folder : Folders(hierarchy, *group))
        read(root + folder, version2, limits);
    }
  }
}

}  // namespace

ControlGroupLimits ReadControlGroupLimits(const std::string& root) {
  ControlGroupLimits limits;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::optional<Hierarchy> hierarchy = ParseMount(line);
    if (hierarchy.has_value()) Read(root, *hierarchy, limits);
  }
  return limits;
}

int64_t UsableCores(absl::Span<const pid_t> others) {
  CpuSet cpus;
  cpus.Add(getpid());
  for (const pid_t process : others) {
    if (process > 0) cpus.Add(process);
  }
  const int64_t in_masks =
      cpus.count() > 0 ? cpus.count() : sysconf(_SC_NPROCESSORS_ONLN);
  const double quota = ReadControlGroupLimits().cores;
  const int64_t cores = quota < static_cast<double>(in_masks)
                            ? static_cast<int64_t>(quota)
                            : in_masks;
  return std::max<int64_t>(1, cores);
}

int64_t UsableMemoryBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  return std::min(pages * page_bytes, ReadControlGroupLimits().memory_bytes);
}

}  // namespace rankwise
