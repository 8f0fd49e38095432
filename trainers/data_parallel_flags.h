// The flags that only the trainer data_parallel has.
#ifndef RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
#define RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"

namespace rankwise {

absl::Status CheckDataParallelFlags();

// One per replica: --devices; without it --replicas of the first GPUs, or as
// many slots of the CPU where --device=cpu or too few GPUs are there.
// InvalidArgument where --device asks for GPUs that are not.
absl::StatusOr<std::vector<c10::Device>> ReplicaDevicesFromFlags();

bool GathersLossesByFlag();  // --gather=loss
bool KeepsCopiesByFlag();    // --replicate=once

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DATA_PARALLEL_FLAGS_H_
