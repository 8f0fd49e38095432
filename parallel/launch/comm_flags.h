// The part of the command line that all binaries with ranks share: how many
// ranks, over which backend, where they meet. Part of the binaries: the
// libraries below see only the structs.
#ifndef RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_
#define RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_

#include <map>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"

ABSL_DECLARE_FLAG(int, nproc);
ABSL_DECLARE_FLAG(std::string, backend);
ABSL_DECLARE_FLAG(int, threads);

namespace rankwise {

// --help shows these flags and those of the binary's own source folder
// ("trainers/"), not those of its libraries. Before flags are parsed.
void DescribeCommandLine(const char* usage, const std::string& folder);

// The same flags with their values, defaults included.
std::map<std::string, std::string> FlagsOf(const std::string& folder);

// InvalidArgument names the flag, its value and what is allowed.
absl::StatusOr<CommConfig> CommConfigFromFlags();
absl::StatusOr<LaunchConfig> LaunchConfigFromFlags();

// Rank 0 of the ranks that --backend=fake pretends.
RankEnv FakeRankEnvFromFlags();

// `asked`, or this machine's cores over the ranks on it where it is 0.
int ThreadsPerRank(int asked, const RankEnv& env);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_
