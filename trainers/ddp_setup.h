// Sets up a training run from ddp's flags: batch norms, all-reduce, buckets,
// checkpoints and graph capture. ddp.cc contains only the step.
#ifndef RANKWISE_TRAINERS_DDP_SETUP_H_
#define RANKWISE_TRAINERS_DDP_SETUP_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "parallel/ddp/gradient_sync.h"
#include "trainers/loop/config.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Checks the conditions on ddp's flags that no rule can express, before any
// rank starts: every rank would otherwise refuse them only after connecting or
// building the model. InvalidArgument if one fails.
absl::Status CheckDdpFlags(const TrainConfig& config);

class DdpSetup {
 public:
  // Call before `run` starts. Converts BatchNorm layers to all ranks' batches
  // (--sync_batch_norm), chooses the all-reduce (--all_reduce), wraps the model
  // in the engine (--ddp) and registers its bucket order for checkpoints.
  // Prints its choices. The arguments must outlive the result. Collective.
  static absl::StatusOr<std::unique_ptr<DdpSetup>> Create(
      const TrainConfig& config, const Worker& worker, TrainingRun& run);

  // Valid for one step: a failed graph capture replaces the engine.
  DataParallelEngine* engine() { return engine_.get(); }

  // Adds --cuda_graph and --check_divergence_every to `step`. Call after the
  // run has started.
  StepFunction Wrapped(StepFunction step);

 private:
  DdpSetup(const TrainConfig& config, const Worker& worker, TrainingRun& run)
      : config_(config), worker_(worker), run_(run) {}
  absl::Status ChooseAllReduceByFlag();
  absl::Status MakeEngine();

  const TrainConfig& config_;
  const Worker& worker_;
  TrainingRun& run_;
  Group all_reduce_;
  std::unique_ptr<DataParallelEngine> engine_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DDP_SETUP_H_
