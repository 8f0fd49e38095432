// The interface between run and trainer for one step, and the errors of steps
// that fail.
#ifndef RANKWISE_TRAINERS_LOOP_STEP_H_
#define RANKWISE_TRAINERS_LOOP_STEP_H_

#include <cstdint>
#include <exception>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/split_mix.h"
#include "trainers/loop/worker.h"
#include "trainers/observe/step_log.h"

namespace rankwise {

struct StepInput {
  int64_t step;     // from 1
  bool ends_epoch;  // the epoch or the run: evaluation and a checkpoint follow
  // On the worker's device; a single one without accumulation.
  absl::Span<const Batch> micro_batches;
  // One per micro-batch, for Model::set_dropout_seed.
  absl::Span<const uint64_t> dropout_seeds;
  double learning_rate;
  StepClock& clock;  // in Phase::kDataWait; the step begins the later phases
  bool traced;       // StepOutcome::trace is required
  // The step is traced or its communication is recorded: the host must observe
  // all of its communication.
  bool watched;
};

// One optimizer step: forward, backward, update. May throw; the run reports it.
using StepFunction =
    std::function<absl::StatusOr<StepOutcome>(const StepInput&)>;

// Returns a seed that depends only on the position of the micro-batch, so that
// every schedule, and a resumed run, draws the same masks.
constexpr uint64_t DropoutSeed(uint64_t run_seed, int64_t step, int dp_rank,
                               int64_t micro_batch) {
  uint64_t hash = MixIn(0, run_seed);
  hash = MixIn(hash, static_cast<uint64_t>(step));
  hash = MixIn(hash, static_cast<uint64_t>(dp_rank));
  return MixIn(hash, static_cast<uint64_t>(micro_batch));
}

// If memory ran out, returns ResourceExhausted with the flags or the trainer
// that need less; otherwise, with several ranks, Communicator::ExplainFailure's
// status; otherwise the exception's first line.
absl::Status ExplainTrainingFailure(absl::string_view attempted,
                                    const std::exception& error,
                                    const Worker& worker);

// Does the same for a loader's error; returns `status` unless memory ran out.
absl::Status ExplainLoadingFailure(const absl::Status& status,
                                   const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_STEP_H_
