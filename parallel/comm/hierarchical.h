// All-reduces that cross hosts once: a reduce-scatter within each host, an
// all-reduce of each rank's part across hosts, an all-gather within each host.
// With n ranks on h hosts, a flat ring sends 2 (n - 1) / n of the bytes over
// every host's link, in 2 (n - 1) sequential steps; this algorithm sends 2 (h -
// 1) / h, in 2 (h - 1) steps (Thakur, Rabenseifner and Gropp 2005, and
// docs/cost_model.md).
#ifndef RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_
#define RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Returns a group of the same ranks whose process group runs all-reduces
// hierarchically if they sum one dense floating-point tensor on the CPU, and
// all other collectives unchanged. Engines accept it like any group. The order
// of summation differs from a flat all-reduce: within hosts first. Traffic and
// failure messages show the parts as the groups "dp_within" and "dp_across".
//
// Collective over all ranks of the job, which `group` must contain. The result
// must not outlive the communicator. InvalidArgument if hosts have different
// numbers of ranks, if all ranks are on one host or each has its own, and on a
// GPU, where NCCL already builds its rings and trees by host.
absl::StatusOr<Group> HierarchicalGroup(const Group& group);

// Algorithm of a group's all-reduces.
enum class AllReduceKind {
  kFlat,          // the backend's algorithm, unaware of hosts
  kHierarchical,  // if there are several hosts with several ranks each
  kAuto,          // the faster one for 4 MiB, measured now
};

struct ChosenAllReduce {
  Group group;       // the group to use
  std::string line;  // to print once: "all-reduce: hierarchical, ..."; or ""
};

// Collective over all ranks of the job, which `group` must contain unless
// `kind` is kFlat. InvalidArgument for kHierarchical if hosts have different
// numbers of ranks, and on a GPU if there are several hosts with several ranks
// each.
absl::StatusOr<ChosenAllReduce> ChooseAllReduce(const Group& group,
                                                AllReduceKind kind);

// Steady-clock time at which this rank last started an all-reduce in `group`
// or, if the group is not hierarchical, any collective; 0 before the first.
int64_t LastReductionStartNs(const Group& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_
