// The baseline: one process, one device. Compare with ddp.cc, which differs in
// the lines that communicate with other ranks.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/graphs/captured_step.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"
#include "trainers/profile_flag.h"

namespace rankwise {
namespace {

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker));
  Model& model = run->model();
  RETURN_IF_ERROR(run->Start(TrainableParameters(model)));
  Optimizer& optimizer = run->optimizer();
  const Objective& objective = run->objective();

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      model.set_dropout_seed(input.dropout_seeds[i]);
      input.clock.Begin(Phase::kForward);
      torch::Tensor share = objective.LossShare(batch, input.micro_batches);
      input.clock.Begin(Phase::kBackward);
      optimizer.ScaledLoss(share).backward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss};
  };
  return run->Train(CaptureIfRequested(config, worker, *run, {.step = step}),
                    /*evaluate=*/nullptr,
                    [&] { return ProfileIfRequested(config, *run); });
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "single",
       .usage = "Trains on one device: the base case that every other trainer "
                "is compared to.\n"
                "  bazel run //trainers:single -- --epochs=1\n"
                "All flags: --help",
       .run = rankwise::Run});
}
