// The command line that all trainers share, beside parallel/comm/comm_flags.
// Part of the binaries: the libraries below see only the structs.
#ifndef RANKWISE_TRAINERS_FLAGS_H_
#define RANKWISE_TRAINERS_FLAGS_H_

#include "absl/status/statusor.h"
#include "trainers/config.h"

namespace rankwise {

// InvalidArgument names the flag, its value and what is allowed. Settles what
// the model decides where a flag is silent.
absl::StatusOr<TrainConfig> TrainConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAGS_H_
