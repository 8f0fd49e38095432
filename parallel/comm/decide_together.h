// Joint decisions of ranks through their store, before a process group exists.
#ifndef RANKWISE_PARALLEL_COMM_DECIDE_TOGETHER_H_
#define RANKWISE_PARALLEL_COMM_DECIDE_TOGETHER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/launch/rank_env.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

// Returns on every rank the result of rank 0's `decide`, which receives the
// `own` of all ranks in rank order. Each `topic` may be used once per job.
// Collective.
//
// Unavailable if a rank does not answer within the store's timeout; the error
// names that rank, which is also reported to the launcher (ReportBlame).
absl::StatusOr<std::string> DecideTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<std::string(const std::vector<std::string>&)>& decide);

// The same for a check: if rank 0's `judge` returns an error, all ranks return
// its message as InvalidArgument.
absl::Status JudgeTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<absl::Status(const std::vector<std::string>&)>& judge);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DECIDE_TOGETHER_H_
