// The flags that all trainers share, in addition to parallel/launch/comm_flags.
// Only binaries link them: libraries see the structs.
#ifndef RANKWISE_TRAINERS_FLAGS_H_
#define RANKWISE_TRAINERS_FLAGS_H_

#include "absl/status/statusor.h"
#include "trainers/loop/config.h"

namespace rankwise {

// Returns the number of ranks of the job: those simulated by --backend=fake,
// those of the surrounding launcher, or --nproc. InvalidArgument as from
// ReadRankEnv().
absl::StatusOr<int> WorldSizeFromFlags();

// Returns the configuration, with the model's defaults for unset flags.
// InvalidArgument names the flag, its value and the allowed values; conditions
// that CheckRules checks are left to it.
absl::StatusOr<TrainConfig> TrainConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAGS_H_
