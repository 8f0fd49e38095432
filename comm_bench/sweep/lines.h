// Ranks of groups that communicate concurrently: a fixed number of neighbours,
// or the lines of a mesh along one of its axes.
#ifndef RANKWISE_COMM_BENCH_SWEEP_LINES_H_
#define RANKWISE_COMM_BENCH_SWEEP_LINES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/sweep/config.h"
#include "comm_bench/sweep/recorded_traffic.h"

namespace rankwise::comm_bench {

// Returns the groups of a sweep: LinesOf, or those of --group_size; empty if
// one group has all ranks. InvalidArgument also for a size that does not divide
// the ranks.
absl::StatusOr<std::vector<std::vector<int>>> GroupsOf(
    const BenchConfig& config, int world_size);

// Returns the lines of --mesh along --axis, in order of their first ranks;
// empty if neither is given. InvalidArgument, with the valid values, for a mesh
// that does not have `world_size` ranks, an axis that is missing or has one
// rank, one flag without the other, and --group_size in addition.
absl::StatusOr<std::vector<std::vector<int>>> LinesOf(const BenchConfig& config,
                                                      int world_size);

// Returns `config` with the mesh on which `traffic` was recorded, if that is
// known and `config` has a mesh or an axis. InvalidArgument if --mesh divides
// the ranks differently, or names the axes differently.
absl::StatusOr<BenchConfig> OnRecordedMesh(BenchConfig config,
                                           const RecordedTraffic& traffic);

// Removes from `traffic` everything but the communication of groups in `lines`.
// InvalidArgument, with the groups that communicated, if nothing is left.
absl::Status KeepLines(const std::vector<std::vector<int>>& lines,
                       RecordedTraffic& traffic);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_LINES_H_
