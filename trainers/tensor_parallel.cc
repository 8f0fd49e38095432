// Tensor parallelism: every rank computes every layer with its part of the
// weights, and all ranks see the same batch. Compare with single.cc: the ranks
// communicate inside the layers, ColumnParallelLinear and RowParallelLinear of
// parallel/tensor/linear.cc, so only one line is new here.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/tensor/sum_gradients.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/layout_flags.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"

namespace rankwise {
namespace {

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker));
  Model& model = run->model();
  RETURN_IF_ERROR(run->Start(TrainableParameters(model)));
  Optimizer& optimizer = run->optimizer();
  const Objective& objective = run->objective();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      model.set_dropout_seed(input.dropout_seeds[i]);
      input.clock.Begin(Phase::kForward);
      torch::Tensor share = objective.LossShare(batch, input.micro_batches);
      input.clock.Begin(Phase::kBackward);
      share.backward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    // Norms that saw only this rank's tokens.
    SumGradients(model.partial_gradient_parameters(), model.parallel().tensor);
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss};
  });
}

absl::StatusOr<Parallelism> Divide(int world_size) {
  return Parallelism{.axes = {{"tp", world_size}},
                     .split = SplitFromFlags(/*tensor=*/world_size)};
}

absl::Status CheckFlags(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  return CheckSplit(config.model, SplitFromFlags(/*tensor=*/ranks));
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "tensor_parallel",
       .usage = "Trains with tensor parallelism: all ranks compute every layer "
                "together.\n"
                "  bazel run //trainers:tensor_parallel -- --nproc=2 "
                "--model=gpt --sequence_parallel\n"
                "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckFlags,
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
