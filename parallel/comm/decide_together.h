// What ranks decide together through their store, before they are connected.
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

// Every rank gives its `own`, and gets what rank 0's `decide` makes of all of
// them, in the order of the ranks. `topic` is used once in a job. Collective.
//
// Unavailable if a rank does not answer within the store's timeout: names it,
// and notes it in the store for the launcher (ReportBlame).
absl::StatusOr<std::string> DecideTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<std::string(const std::vector<std::string>&)>& decide);

// The same where rank 0 only judges: if `judge` objects, all ranks get its
// message as InvalidArgument.
absl::Status JudgeTogether(
    c10d::Store& store, const std::string& topic, const RankEnv& env,
    const std::string& own,
    const std::function<absl::Status(const std::vector<std::string>&)>& judge);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DECIDE_TOGETHER_H_
