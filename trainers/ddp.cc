// Data parallelism: every rank holds the whole model, trains on its share of
// each batch, and averages gradients with the others while backward is still
// running. The difference from single.cc is the engine around forward and
// backward, which ddp_setup.cc creates from the flags.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/ddp_setup.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"

namespace rankwise {
namespace {

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker));
  Model& model = run->model();
  ASSIGN_OR_RETURN(std::unique_ptr<DdpSetup> setup,
                   DdpSetup::Create(config, worker, *run));
  RETURN_IF_ERROR(run->Start(TrainableParameters(model)));
  Optimizer& optimizer = run->optimizer();
  const Objective& objective = run->objective();

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    DataParallelEngine* const engine = setup->engine();
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      model.set_dropout_seed(input.dropout_seeds[i]);
      // Only the last micro-batch's backward exchanges gradients; the
      // others add up locally.
      engine->SetSync(&batch == &input.micro_batches.back());
      input.clock.Begin(Phase::kForward);
      engine->BeforeForward();
      torch::Tensor share = objective.LossShare(batch, input.micro_batches);
      const torch::Tensor scaled = optimizer.ScaledLoss(share);
      engine->BeforeBackward({scaled});
      input.clock.Begin(Phase::kBackward);
      scaled.backward();
      engine->AfterBackward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss,
                       .exposed_comm_seconds = engine->TakeExposedComm()};
  };
  return run->Train(setup->Wrapped(step));
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
       .check_flags = rankwise::CheckDdpFlags,
       .run = rankwise::Run});
}
