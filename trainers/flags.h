// The command line that all trainers share. Part of the binaries: the libraries
// below see only the structs.
#ifndef RANKWISE_TRAINERS_FLAGS_H_
#define RANKWISE_TRAINERS_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/rank_env.h"
#include "trainers/config.h"

namespace rankwise {

// InvalidArgument names the flag, its value and what is allowed. Settles what
// the model decides where a flag is silent.
absl::StatusOr<TrainConfig> TrainConfigFromFlags();
absl::StatusOr<CommConfig> CommConfigFromFlags();
absl::StatusOr<LaunchConfig> LaunchConfigFromFlags();

// Rank 0 of the ranks that --backend=fake pretends.
RankEnv FakeRankEnvFromFlags();

// `path` as the user meant it: relative to where the command was typed, also
// under `bazel run`. Empty stays empty.
std::string UserPath(const std::string& path);

// The source tree that `bazel run` was started in, or empty.
std::string Workspace();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAGS_H_
