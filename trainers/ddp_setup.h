// What ddp makes of its flags around a training run: batch norms, all-reduce,
// buckets, checkpoints and graph capture, so that ddp.cc is its step.
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

// Checks ddp's flags before any rank starts, where no rule can.
absl::Status CheckDdpFlags(const TrainConfig& config);

class DdpSetup {
 public:
  // Before `run` starts: makes its BatchNorm layers see all ranks' batches
  // (--sync_batch_norm), chooses the all-reduce (--all_reduce), and puts the
  // engine (--ddp) around the model, whose order of buckets goes to
  // checkpoints. Says what it chose. The arguments must outlive the result.
  // Collective.
  static absl::StatusOr<std::unique_ptr<DdpSetup>> Create(
      const TrainConfig& config, const Worker& worker, TrainingRun& run);

  // The engine; replaced when a step could not be captured.
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
