// Command-line flags shared by all binaries with ranks: number of ranks,
// backend, rendezvous. Only binaries read them; libraries receive the structs.
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

// Checks of flags, which report the flag as typed; stores the first error.
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

  // Checks a file to be written: its folder must exist, since the error would
  // otherwise come after hours of work. An empty path is valid.
  void FileOrNew(const char* name, const std::string& path);

  // The same for a folder that will be created if it is missing.
  void FolderOrNew(const char* name, const std::string& path);

  void Complain(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  void ParentExists(const char* name, const std::string& path);

  absl::Status status_;
};

// Makes --help list these flags and those of the binary's own source folder
// ("trainers/"), not those of its libraries. Call before parsing flags.
void DescribeCommandLine(const char* usage, const std::string& folder);

// Returns the flags that --help lists, with their values, defaults included.
std::map<std::string, std::string> FlagsOf(const std::string& folder);

// InvalidArgument names the flag, its value and the allowed values.
absl::StatusOr<CommConfig> CommConfigFromFlags();
absl::StatusOr<LaunchConfig> LaunchConfigFromFlags();

// Rank 0 of the ranks simulated by --backend=fake.
RankEnv FakeRankEnvFromFlags();

// Returns `requested` or, if it is 0, an equal share of this machine's cores.
int ThreadsPerRank(int requested, const RankEnv& env);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_COMM_FLAGS_H_
