// The flags of the trainers that cut a model into stages, and their checks
// before any rank is started: --split and --devices of both, and the pipeline's
// own. data_parallel also has --devices (devices_flag.cc).
#ifndef RANKWISE_TRAINERS_STAGE_FLAGS_H_
#define RANKWISE_TRAINERS_STAGE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

std::string SplitFromFlags();

// --devices, by rank of a pipeline in one process or by replica; where it is
// empty, `without`. InvalidArgument for devices that this machine does not
// have.
absl::StatusOr<std::vector<c10::Device>> StageDevicesFromFlags(
    const std::string& without);

bool DevicesGiven();
absl::Status BadDevices(const std::string& why);

// InvalidArgument for --backend=fake, whose ranks hand no activations on.
absl::Status CheckBackendOfStages();

// InvalidArgument where --split does not cut --model into `stages`.
absl::Status CheckSplitFits(int stages);

// Of the trainer pipeline (pipeline_flags.cc): also whether schedule, stages
// and ranks fit.
absl::Status CheckPipelineFlags();
PipelineConfig PipelineConfigFromFlags();
// The same without --devices, of a pipeline that other flags have to do with.
absl::Status CheckPipeline(const PipelineConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGE_FLAGS_H_
