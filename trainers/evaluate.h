// Evaluation over the whole test set, every example counted once, whatever the
// world size.
#ifndef RANKWISE_TRAINERS_EVALUATE_H_
#define RANKWISE_TRAINERS_EVALUATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/objective.h"
#include "trainers/training_data.h"
#include "trainers/worker.h"

namespace rankwise {

// A collective call where worker.comm is set: every rank evaluates its share,
// and the sums are all-reduced. Internal error if the ranks together did not
// see exactly the test set.
absl::StatusOr<EvalRecord> Evaluate(const Objective& objective,
                                    TrainingData& data, const Worker& worker,
                                    int64_t epoch);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_EVALUATE_H_
