// The flags of the trainers that cut a model into stages.
#ifndef RANKWISE_TRAINERS_PIPELINE_FLAGS_H_
#define RANKWISE_TRAINERS_PIPELINE_FLAGS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/pipeline_config.h"

namespace rankwise {

// Checks what can be known before any rank is started: with --nproc also
// whether schedule, stages and ranks fit.
absl::Status CheckPipelineFlags();

// By rank of a pipeline in one process; empty without --devices.
// InvalidArgument for devices that this machine does not have.
absl::StatusOr<std::vector<c10::Device>> PipelineDevicesFromFlags();

// Paths are resolved against the folder that `bazel run` was typed in.
PipelineConfig PipelineConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_FLAGS_H_
