// A job before its ranks run: how the ranks divide the work, their
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

// The same on all ranks.
struct Job {
  int world_size = 1;
  Parallelism parallelism;
  MeshLayout layout = *LayOutRanks({}, 1);
  // With --global_batch_size, batch_size is that of each data-parallel rank; a
  // pipeline accumulates over its micro-batches.
  TrainConfig config;
};

// InvalidArgument where mesh and ranks do not fit, data-parallel ranks do not
// divide --global_batch_size, or all ranks are servers.
absl::StatusOr<Job> PlanJob(const Trainer& trainer, const TrainConfig& config,
                            int world_size);

// Fails where every rank would: on the dataset, on a checkpoint of another
// configuration, on a trace that would never begin. Starts no threads.
absl::Status CheckJob(const Trainer& trainer, const Job& job);

// --dry_run: a table of what the ranks compute to hold in memory, one row for
// those that hold the same, on devices of one type. Nothing is allocated; cuts
// by measured times (--split=time) are taken to be those by FLOPs. Fails as the
// ranks would.
absl::StatusOr<std::string> MemoryTable(const Job& job, c10::DeviceType device);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_JOB_H_
