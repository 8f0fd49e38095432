// Checks whether a run may continue from a checkpoint.
#ifndef RANKWISE_TRAINERS_RESUME_RESUME_CHECK_H_
#define RANKWISE_TRAINERS_RESUME_RESUME_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Returns the settings that affect the losses of a run of `total_steps`, as
// JSON for its checkpoints.
std::string LossDecidingConfig(const TrainConfig& config, const Worker& worker,
                               int64_t total_steps);

// Returns the saved run's micro-batches per step, or FailedPrecondition if a
// run with the configuration `now_text` would not continue the one with
// `saved_text` unchanged (both from LossDecidingConfig), naming the first
// setting that differs, as typed. A setting that `saved_text` lacks must have
// its default. Ranks, batch size and micro-batches may differ if their product,
// the examples per step, is the same.
absl::StatusOr<int64_t> CheckConfig(const std::string& saved_text,
                                    const std::string& now_text,
                                    const TrainConfig& config,
                                    const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RESUME_CHECK_H_
