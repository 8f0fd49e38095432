// What a rank of a job is configured as, and whether it can be: checked before
// any rank is started, by the code that runs on the rank.
#ifndef RANKWISE_TRAINERS_RANK_CONFIG_H_
#define RANKWISE_TRAINERS_RANK_CONFIG_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/main.h"

namespace rankwise {

// The trainer's mesh of all ranks: data parallel where it names no axes.
// InvalidArgument as LayOutRanks.
absl::StatusOr<MeshLayout> LayoutOf(const Trainer& trainer, int world_size);

// `config` with the batch size of each of `dp_ranks` data-parallel ranks, if
// --global_batch_size is given. InvalidArgument unless they divide it.
absl::StatusOr<TrainConfig> WithBatchSize(const Trainer& trainer,
                                          TrainConfig config, int dp_ranks);

// Of each of the `world_size` ranks of `layout`. InvalidArgument as above, or
// if all of them are servers.
absl::StatusOr<TrainConfig> ConfigOfRank(const Trainer& trainer,
                                         const TrainConfig& config,
                                         const MeshLayout& layout,
                                         int world_size);

// What every one of `world_size` ranks would refuse: its configuration, the
// dataset, a checkpoint of another configuration, and a trace that would never
// begin. Starts no threads.
absl::Status CheckRanks(const Trainer& trainer, const TrainConfig& config,
                        int world_size);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RANK_CONFIG_H_
