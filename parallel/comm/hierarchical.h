// All-reduces that cross hosts once: a reduce-scatter within each host, an
// all-reduce across hosts of each rank's part, an all-gather within. Of n ranks
// on h hosts a flat ring sends 2 (n - 1) / n of the bytes over every host's
// link, in 2 (n - 1) steps one after the other; this sends 2 (h - 1) / h, in 2
// (h - 1) (Thakur, Rabenseifner and Gropp 2005, and docs/cost_model.md).
#ifndef RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_
#define RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"

namespace rankwise {

// The same ranks, whose process group does so with sums of one dense tensor of
// floating-point numbers on the CPU, and anything else as before. Engines take
// it as any group. Sums are added in another order than by a flat all-reduce:
// first within hosts. The parts appear in traffic, and in what failures are
// explained by, as the groups "dp_within" and "dp_across".
//
// Collective over all ranks of the job, which `group` must have all of. Use it
// no longer than the communicator. InvalidArgument where hosts have different
// numbers of ranks, where all ranks are on one host or each on its own, and on
// a GPU, where NCCL lays its own rings and trees out by host.
absl::StatusOr<Group> HierarchicalGroup(const Group& group);

// How a group's all-reduces cross hosts.
enum class AllReduceKind {
  kFlat,          // as the backend does it, which knows no hosts
  kHierarchical,  // where there are hosts to cross, and several ranks on each
  kAuto,          // what takes less time for 4 MiB, measured now
};

struct ChosenAllReduce {
  Group group;       // the one to use
  std::string line;  // to print once: "all-reduce: hierarchical, ..."; or ""
};

// Collective over all ranks of the job. InvalidArgument as HierarchicalGroup,
// of kHierarchical alone and where the ranks are on several hosts.
absl::StatusOr<ChosenAllReduce> ChooseAllReduce(const Group& group,
                                                AllReduceKind kind);

// Steady-clock time at which this rank last started an all-reduce in `group`,
// or, unless the group is hierarchical, any collective; 0 before the first.
int64_t LastReductionStartNs(const Group& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_HIERARCHICAL_H_
