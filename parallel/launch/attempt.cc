#include "parallel/launch/attempt.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

std::string UnixSeconds(absl::Time time) {
  return absl::StrFormat("%.3f",
                         1e-3 * static_cast<double>(absl::ToUnixMillis(time)));
}

}  // namespace

std::vector<std::string> EnvironmentOf(const Attempt& attempt, int rank,
                                       int ranks, int max_restarts) {
  std::vector<std::string> environment = {
      absl::StrCat("RANK=", rank),
      absl::StrCat("WORLD_SIZE=", ranks),
      absl::StrCat("LOCAL_RANK=", rank),
      absl::StrCat("LOCAL_WORLD_SIZE=", ranks),
      "TORCHELASTIC_USE_AGENT_STORE=True",
      absl::StrCat("TORCHELASTIC_RESTART_COUNT=", attempt.restart),
      absl::StrCat("TORCHELASTIC_MAX_RESTARTS=", max_restarts),
      "RANKWISE_LAUNCHER=1",
  };
  if (attempt.restart == 0) return environment;
  for (const std::string& variable :
       {absl::StrCat("RANKWISE_RESTART_CAUSE=", attempt.cause),
        absl::StrCat("RANKWISE_FAILED_AT=", UnixSeconds(attempt.failed)),
        absl::StrCat("RANKWISE_STARTED_AT=", UnixSeconds(attempt.started))}) {
    environment.push_back(variable);
  }
  return environment;
}

}  // namespace rankwise
