// The part of the command line that all binaries with ranks share: how many
// ranks, over which backend, where they meet. Part of the binaries: the
// libraries below see only the structs.
#ifndef RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_
#define RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"

ABSL_DECLARE_FLAG(int, nproc);
ABSL_DECLARE_FLAG(std::string, backend);
ABSL_DECLARE_FLAG(int, threads);

namespace rankwise {

// Checks of flags that name the flag as it is typed; keeps the first complaint.
class FlagChecks {
 public:
  template <typename T>
  void InRange(const char* name, T value, T low,
               T high = std::numeric_limits<T>::max()) {
    if (value >= low && value <= high) return;
    std::string allowed = high == std::numeric_limits<T>::max()
                              ? absl::StrCat("at least ", low)
                              : absl::StrCat("between ", low, " and ", high);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) allowed = absl::StrCat("finite and ", allowed);
    }
    Complain(absl::StrCat("--", name, "=", value, ": must be ", allowed));
  }

  void OneOf(const char* name, const std::string& value,
             const std::vector<std::string>& allowed);

  // A file that will be written, in a folder that must be there before hours
  // are spent. An empty path is no file.
  void FileOrNew(const char* name, const std::string& path);

  // The same for a folder that will be made unless it is there.
  void FolderOrNew(const char* name, const std::string& path);

  void Complain(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  void ParentExists(const char* name, const std::string& path);

  absl::Status status_;
};

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

// `requested`, or this machine's cores over the ranks on it where it is 0.
int ThreadsPerRank(int requested, const RankEnv& env);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_
