// A job before its ranks run: division of the work among the ranks, their
// configuration, its checks, and their computed memory.
#ifndef RANKWISE_TRAINERS_JOB_H_
#define RANKWISE_TRAINERS_JOB_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/DeviceType.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/main.h"

namespace rankwise {

// Identical on all ranks.
struct Job {
  int world_size = 1;
  Parallelism parallelism;
  MeshLayout layout = *LayOutRanks({}, 1);
  // With --global_batch_size, batch_size is that of each data-parallel rank;
  // pipelines accumulate over their micro-batches.
  TrainConfig config;
};

// InvalidArgument if the mesh does not fit the ranks, the data-parallel ranks
// do not divide --global_batch_size, or all ranks are servers.
absl::StatusOr<Job> PlanJob(const Trainer& trainer, const TrainConfig& config,
                            int world_size);

// Fails if every rank would fail: on the dataset, on a checkpoint of another
// configuration, or on a trace that would never begin. Starts no threads.
absl::Status CheckJob(const Trainer& trainer, const Job& job);

// Returns the table of --dry_run: the computed memory of the ranks, one row per
// set of ranks with equal memory, on devices of one type. Allocates nothing;
// assumes cuts by FLOPs for --split=time. Fails as ranks would.
absl::StatusOr<std::string> MemoryTable(const Job& job, c10::DeviceType device);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_JOB_H_
