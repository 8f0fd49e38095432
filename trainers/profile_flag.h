// --profile of the trainer single.
#ifndef RANKWISE_TRAINERS_PROFILE_FLAG_H_
#define RANKWISE_TRAINERS_PROFILE_FLAG_H_

#include "absl/status/status.h"
#include "trainers/loop/training_run.h"

namespace rankwise {

// If --profile is set, times the layers of `run`'s model over the data's first
// batch, prints the table and records it. Call after training, before the
// records are closed.
absl::Status ProfileIfRequested(const TrainConfig& config, TrainingRun& run);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PROFILE_FLAG_H_
