// The description of a training run, in its output and in its run record.
#ifndef RANKWISE_TRAINERS_LOOP_RUN_DESCRIPTION_H_
#define RANKWISE_TRAINERS_LOOP_RUN_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "records/example_unit.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// An example of `model` is a sequence of tokens if there is a prediction for
// each token, an image if it has channels, height and width.
ExampleUnit UnitOf(const ModelSpec& model);

// Returns the FLOPs of forward and backward per example on one of this rank's
// devices; all slots of the CPU are one device. `replicas`, as in
// ModelPlacement, divide the examples, even on a shared device, like ranks.
double TrainingFlops(const ModelSpec& spec, const Worker& worker, int replicas);

absl::StatusOr<RunRecord> DescribeTrainer(const TrainConfig& config,
                                          const Worker& worker,
                                          const ModelSpec& spec);

// Returns "cpu, 2 threads, gloo".
std::string DescribeRank(const Worker& worker);

struct TrainingLength {
  std::string dataset;
  int64_t dataset_size = 0;  // examples
  int64_t global_batch = 0;  // examples per step, of all ranks
  int64_t steps = 0;
};

// Returns the lines printed at the start of a run.
std::vector<std::string> DescribeTraining(const TrainConfig& config,
                                          const Worker& worker,
                                          const ModelSpec& spec,
                                          const TrainingLength& length);

// Returns "" if no warning is needed.
std::string WarnOfSmallBatchNorm(const TrainConfig& config, const Model& model);

// For a run continued after its last step. `why`: --resume, or a restart.
std::string DescribeNothingLeft(const std::string& why,
                                const TrainConfig& config, int64_t steps);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_RUN_DESCRIPTION_H_
