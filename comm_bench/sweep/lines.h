// Which ranks communicate together where several groups do so at the same time:
// a fixed number of neighbours, or the lines of a mesh along one of its axes.
#ifndef RANKWISE_COMM_BENCH_SWEEP_LINES_H_
#define RANKWISE_COMM_BENCH_SWEEP_LINES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/sweep/config.h"
#include "comm_bench/sweep/recorded_traffic.h"

namespace rankwise::comm_bench {

// The groups of a sweep: LinesOf, or those of --group_size; none where one
// group has all ranks. InvalidArgument also for a size that does not divide.
absl::StatusOr<std::vector<std::vector<int>>> GroupsOf(
    const BenchConfig& config, int world_size);

// The lines of --mesh along --axis, in order of their first ranks; none where
// neither is given. InvalidArgument says what fits: for a mesh that is not of
// `world_size` ranks, an axis that it does not have or that has one rank, one
// flag without the other, and --group_size next to them.
absl::StatusOr<std::vector<std::vector<int>>> LinesOf(const BenchConfig& config,
                                                      int world_size);

// Returns `config` with the mesh on which `traffic` was recorded, if that is
// known and `config` has a mesh or an axis. InvalidArgument if --mesh divides
// the ranks in another way, or gives the axes other names.
absl::StatusOr<BenchConfig> OnRecordedMesh(BenchConfig config,
                                           const RecordedTraffic& traffic);

// Leaves of `traffic` what a group that is one of `lines` communicated.
// InvalidArgument where that is nothing, with the groups that did.
absl::Status KeepLines(const std::vector<std::vector<int>>& lines,
                       RecordedTraffic& traffic);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_LINES_H_
