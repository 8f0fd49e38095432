// The flags that only the trainer data_parallel has.
#ifndef RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
#define RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/loop/config.h"

namespace rankwise {

absl::Status CheckDataParallelFlags(const TrainConfig&);

// One for each replica: --devices; without it the first --replicas GPUs, or,
// with
// --device=cpu or too few GPUs, as many slots of the CPU. InvalidArgument where
// --device asks for GPUs that are not there.
absl::StatusOr<std::vector<c10::Device>> ReplicaDevicesFromFlags();

bool GathersLossesByFlag();  // --gather=loss
bool KeepsCopiesByFlag();    // --replicate=once

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
