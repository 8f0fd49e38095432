// The part of a training run that handles restarts by a launcher.
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

// Returns the largest RankEnv::restart_count of any rank: torchrun's agents on
// several hosts may count differently. Collective.
absl::StatusOr<int64_t> AgreeOnRestart(const Worker& worker);

// For a run that starts from the beginning: if torchrun may restart it, sets
// the checkpoints in the folder aside, so that no restart continues from them.
// rankwise's launcher does this before the ranks start. Collective.
absl::Status SetAsideOldCheckpoints(const CheckpointConfig& config,
                                    const Worker& worker);

// Returns the record of a restart whose training resumes now from `progress`.
RestartRecord RestartNow(const RankEnv& env, int64_t restart,
                         const Progress& progress);

// Returns "restart 1 after rank 1 (process 7) ended with ...; 2.5 s lost".
std::string DescribeRestart(const RestartRecord& record);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RESTART_H_
