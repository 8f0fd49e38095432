// The command line that all trainers share, in addition to
// parallel/launch/comm_flags. Part of the binaries: the libraries below see
// only the structs.
#ifndef RANKWISE_TRAINERS_FLAGS_H_
#define RANKWISE_TRAINERS_FLAGS_H_

#include "absl/status/statusor.h"
#include "trainers/loop/config.h"

namespace rankwise {

// The ranks of the job: those that --backend=fake pretends, those of the
// launcher that this process is in, or else --nproc. InvalidArgument as
// ReadRankEnv().
absl::StatusOr<int> WorldSizeFromFlags();

// Settles what the model decides where a flag is silent. InvalidArgument names
// the flag, its value and what is allowed, but leaves what CheckRules
// sees to it.
absl::StatusOr<TrainConfig> TrainConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAGS_H_
