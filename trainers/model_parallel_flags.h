// The flags of the manual model-parallel trainer.
#ifndef RANKWISE_TRAINERS_MODEL_PARALLEL_FLAGS_H_
#define RANKWISE_TRAINERS_MODEL_PARALLEL_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/config.h"
#include "trainers/pipeline_config.h"

namespace rankwise {

absl::Status CheckModelParallelFlags();

// One device per stage of the one-process way. InvalidArgument for a device
// that this machine does not have.
absl::StatusOr<std::vector<c10::Device>> StageDevicesFromFlags();

// The naive schedule over one process per stage, and where to cut.
PipelineConfig ModelParallelConfigFromFlags(const TrainConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODEL_PARALLEL_FLAGS_H_
