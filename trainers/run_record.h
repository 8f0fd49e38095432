// The record that opens a run: what ran, with which flags, on what.
#ifndef RANKWISE_TRAINERS_RUN_RECORD_H_
#define RANKWISE_TRAINERS_RUN_RECORD_H_

#include <string>

#include "absl/status/statusor.h"
#include "records/example_unit.h"
#include "records/record.h"
#include "trainers/models/model.h"
#include "trainers/worker.h"

namespace rankwise {

// Collective where there are several ranks: they agree on rank 0's run id. The
// flags are the process's own.
absl::StatusOr<RunRecord> DescribeRun(const Worker& worker);

// What an example of `model` is: tokens where each has a prediction of its own,
// an image where it has channels, height and width.
ExampleUnit UnitOf(const ModelSpec& model);

// ", gloo" for a worker with a process group, else "".
std::string DescribeBackend(const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RUN_RECORD_H_
