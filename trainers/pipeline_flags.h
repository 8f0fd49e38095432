// The flags that only the pipeline trainer has.
#ifndef RANKWISE_TRAINERS_PIPELINE_FLAGS_H_
#define RANKWISE_TRAINERS_PIPELINE_FLAGS_H_

#include "absl/status/status.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

// Checks what can be known before any rank is started: with --nproc also
// whether schedule, stages and ranks fit.
absl::Status CheckPipelineFlags();

// Paths are resolved against the folder that `bazel run` was typed in.
PipelineConfig PipelineConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_FLAGS_H_
