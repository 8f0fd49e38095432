// The flags of the trainer data_parallel.
#ifndef RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
#define RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/loop/config.h"

namespace rankwise {

absl::Status CheckDataParallelFlags(const TrainConfig&);

// Returns a device per replica: those of --devices; without it the first
// --replicas GPUs, or, with --device=cpu or too few GPUs, that many slots of
// the CPU. InvalidArgument if --device names a single GPU (cuda:1), or is cuda
// and there are too few GPUs.
absl::StatusOr<std::vector<c10::Device>> ReplicaDevicesFromFlags();

bool GathersLossesByFlag();  // --gather=loss
bool KeepsCopiesByFlag();    // --replicate=once

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
