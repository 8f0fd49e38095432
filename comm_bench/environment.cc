#include "comm_bench/environment.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "records/text.h"

namespace rankwise::comm_bench {
namespace {

// A name that ends in '_' is a prefix.
constexpr absl::string_view kRelevant[] = {
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "FI_",
    "GLOO_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "TORCH_DISTRIBUTED_",
    "TORCH_FR_",
    "TORCH_NCCL_",
    "UCX_",
};

bool IsRelevant(absl::string_view name) {
  return std::any_of(std::begin(kRelevant), std::end(kRelevant),
                     [name](absl::string_view known) {
                       return known.back() == '_'
                                  ? absl::StartsWith(name, known)
                                  : name == known;
                     });
}

using Topology =
    std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

// Returns nullptr if hwloc fails.
Topology LoadTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) {
    return Topology(nullptr, &hwloc_topology_destroy);
  }
  Topology owned(topology, &hwloc_topology_destroy);
  // The whole machine, even if a container may use only a part of it.
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(topology) != 0) owned.reset();
  return owned;
}

std::vector<int64_t> CpusOfProcess(hwloc_topology_t topology) {
  const std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>,
                        decltype(&hwloc_bitmap_free)>
      set(hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  std::vector<int64_t> cpus;
  if (set == nullptr ||
      hwloc_get_cpubind(topology, set.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return cpus;
  }
  // -1 for an infinite set, which hwloc returns if nothing is bound.
  const int last = hwloc_bitmap_last(set.get());
  for (int cpu = 0; cpu <= last; ++cpu) {
    if (hwloc_bitmap_isset(set.get(), cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string Counted(hwloc_topology_t topology, hwloc_obj_type_t type,
                    absl::string_view noun) {
  return rankwise::Counted(hwloc_get_nbobjs_by_type(topology, type), noun);
}

// Returns "L2 8 x 2 MiB + 4 x 4 MiB"; "" without such caches.
std::string Caches(hwloc_topology_t topology, hwloc_obj_type_t type,
                   absl::string_view level) {
  std::map<uint64_t, int> count_of_size;
  const int n = hwloc_get_nbobjs_by_type(topology, type);
  for (int i = 0; i < n; ++i) {
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, i);
    if (cache->attr->cache.size > 0) ++count_of_size[cache->attr->cache.size];
  }
  if (count_of_size.empty()) return "";
  const auto append = [](std::string* out, const auto& entry) {
    const auto& [size, count] = entry;
    absl::StrAppend(out, count == 1 ? "" : absl::StrCat(count, " x "),
                    FormatBytes(size));
  };
  return absl::StrCat(", ", level, " ",
                      absl::StrJoin(count_of_size, " + ", append));
}

std::vector<absl::string_view> AllVariables() {
  std::vector<absl::string_view> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.push_back(*entry);
  }
  return entries;
}

}  // namespace

EnvironmentRecord CollectEnvironment(int64_t rank) {
  EnvironmentRecord record;
  record.rank = rank;
  record.variables = RelevantVariables(AllVariables());
  const Topology topology = LoadTopology();
  if (topology == nullptr) return record;
  record.topology = DescribeTopology(topology.get());
  record.cpus = CpusOfProcess(topology.get());
  return record;
}

std::string DescribeTopology(hwloc_topology* topology) {
  return absl::StrCat(Counted(topology, HWLOC_OBJ_PACKAGE, "package"), ", ",
                      Counted(topology, HWLOC_OBJ_CORE, "core"), ", ",
                      Counted(topology, HWLOC_OBJ_PU, "PU"), ", ",
                      Counted(topology, HWLOC_OBJ_NUMANODE, "NUMA node"),
                      Caches(topology, HWLOC_OBJ_L2CACHE, "L2"),
                      Caches(topology, HWLOC_OBJ_L3CACHE, "L3"));
}

std::map<std::string, std::string> RelevantVariables(
    absl::Span<const absl::string_view> entries) {
  std::map<std::string, std::string> variables;
  for (absl::string_view entry : entries) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (!IsRelevant(parts.first)) continue;
    variables.emplace(parts.first, parts.second);
  }
  return variables;
}

std::string FormatCpus(absl::Span<const int64_t> cpus) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < cpus.size(); begin = end) {
    end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    absl::StrAppend(&text, begin > 0 ? "," : "", cpus[begin]);
    if (end > begin + 1) absl::StrAppend(&text, "-", cpus[end - 1]);
  }
  return text;
}

}  // namespace rankwise::comm_bench
