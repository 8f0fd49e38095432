// Slurm's variables, and the compressed lists inside them.
#ifndef RANKWISE_PARALLEL_COMM_SLURM_H_
#define RANKWISE_PARALLEL_COMM_SLURM_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

using SlurmLookup =
    std::function<std::optional<std::string>(const std::string& name)>;

// True when this process is one of several tasks of a job step. A batch script
// has SLURM_PROCID=0 although it is no rank; it lacks SLURM_STEP_NUM_TASKS.
bool IsSlurmRank(const SlurmLookup& lookup);

// The variable that holds the step's number of tasks.
std::string SlurmWorldSizeName(const SlurmLookup& lookup);

// Tasks of the step on this node: from SLURM_STEP_TASKS_PER_NODE or
// SLURM_TASKS_PER_NODE at SLURM_NODEID, else SLURM_NTASKS_PER_NODE, else
// `world_size` on a single node. InvalidArgument names what is missing.
absl::StatusOr<int> SlurmLocalWorldSize(const SlurmLookup& lookup,
                                        int world_size);

// The host of rank 0 under the default (block) distribution: the first of the
// step's, or else the job's, node list. Empty when there is none.
std::string SlurmFirstHost(const SlurmLookup& lookup);

// "<job>.<step>", empty when unknown.
std::string SlurmStepId(const SlurmLookup& lookup);

// "gpu[07-09,12],login1" -> "gpu07"; "a-[1-2]-ib" -> "a-1-ib".
std::string FirstOfNodeList(absl::string_view list);

// Entry `index` of "4(x2),3" = 4, 4, 3; nothing if malformed or too short.
std::optional<int> EntryOfCountList(absl::string_view list, int index);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_SLURM_H_
