// Data parallelism: every rank holds the whole model, trains on its share of
// each batch, and averages gradients with the others while backward is still
// running. Compare with single.cc: what differs is the engine around forward
// and backward.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/ddp/divergence.h"
#include "trainers/capture_if_asked.h"
#include "trainers/ddp_flags.h"
#include "trainers/main.h"
#include "trainers/training_run.h"

namespace rankwise {
namespace {

// Before a recording: PyTorch's Reducer rebuilds its buckets after the first
// step and reads the device's clock in the first ten.
constexpr int64_t kWarmUpStepsOfDdp = 11;

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  absl::StatusOr<std::unique_ptr<TrainingRun>> run =
      TrainingRun::Create(config, worker);
  if (!run.ok()) return run.status();
  absl::StatusOr<std::string> norms = SyncBatchNormIfAsked(
      (*run)->model(), *worker.comm, config.skip_communication);
  if (!norms.ok()) return norms.status();
  if (!norms->empty()) (*run)->Say(*norms);
  absl::StatusOr<std::unique_ptr<DataParallelEngine>> engine =
      MakeEngine((*run)->model(), *worker.comm, config.skip_communication);
  if (!engine.ok()) return engine.status();
  Optimizer& optimizer = (*run)->optimizer();
  const Objective& objective = (*run)->objective();

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      (*run)->model().set_dropout_seed(input.dropout_seeds[i]);
      // Only the last micro-batch's backward exchanges gradients; the
      // others add up locally.
      (*engine)->SetSync(&batch == &input.micro_batches.back());
      input.clock.Begin(Phase::kForward);
      (*engine)->BeforeForward();
      torch::Tensor share = objective.LossShare(batch, input.micro_batches);
      const torch::Tensor scaled = optimizer.ScaledLoss(share);
      (*engine)->BeforeBackward({scaled});
      input.clock.Begin(Phase::kBackward);
      scaled.backward();
      (*engine)->AfterBackward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss,
                       .exposed_comm_seconds = (*engine)->TakeExposedComm()};
  };
  const StepFunction captured = CaptureIfAsked(
      config, worker, **run,
      {.step = step,
       .warm_up_steps = kWarmUpStepsOfDdp,
       // A Reducer that was left in the middle of a backward is of no more use.
       .recover = [&]() -> absl::Status {
         engine = MakeEngine((*run)->model(), *worker.comm,
                             config.skip_communication);
         return engine.status();
       }});

  return (*run)->Train(
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
        absl::StatusOr<StepOutcome> outcome = captured(input);
        const int64_t check_every = config.check_divergence_every;
        if (outcome.ok() && check_every > 0 && input.step % check_every == 0) {
          absl::Status equal = CheckDivergence((*run)->model(), *worker.comm);
          if (!equal.ok()) return equal;
        }
        return outcome;
      });
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "ddp",
       .usage = "Trains with data parallelism (DistributedDataParallel).\n"
                "  bazel run //trainers:ddp -- --nproc=2 --epochs=1\n"
                "  torchrun --no-python --nproc-per-node=2 "
                "bazel-bin/trainers/ddp --epochs=1\n"
                "All flags: --help",
       .distributed = true,
       .whole_model = true,
       .check_flags = rankwise::CheckDdpFlags,
       .settings = rankwise::DdpSettings,
       .run = rankwise::Run});
}
