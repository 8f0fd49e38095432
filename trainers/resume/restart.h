// What a launcher's restart of the ranks means to a run.
#ifndef RANKWISE_TRAINERS_RESUME_RESTART_H_
#define RANKWISE_TRAINERS_RESUME_RESTART_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/launch/rank_env.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/resume/progress.h"

namespace rankwise {

// The largest RankEnv::restart_count of any rank: agents of torchrun on several
// hosts may count differently. Collective.
absl::StatusOr<int64_t> AgreeOnRestart(const Worker& worker);

// Of a run that is no restart and does not resume: where torchrun may restart
// it, sets the folder's checkpoints aside, from which a restart would go on.
// Our own launcher's job has done so before there were ranks. Collective.
absl::Status BeginAnew(const CheckpointConfig& config, const Worker& worker);

// That the training of restart `restart` now goes on from `progress`.
RestartRecord RestartNow(const RankEnv& env, int64_t restart,
                         const Progress& progress);

// "restart 1 after rank 1 (process 7) ended with ...; 2.5 s are lost".
std::string DescribeRestart(const RestartRecord& record);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RESTART_H_
