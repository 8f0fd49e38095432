// Sharded data parallelism (ZeRO 1 to 3, FSDP): as in ddp.cc every rank trains
// on its share of each batch, but holds only its rows of the optimizer state,
// the gradients and the parameters, and gathers the other rows while a layer
// computes. Compare with ddp.cc: the engine also chooses the optimizer's
// tensors.

#include <memory>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layout_flags.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"

ABSL_DECLARE_FLAG(int, zero);

namespace rankwise {
namespace {

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  const ZeroConfig zero = ZeroFromFlags();
  ModelPlacement placement;
  placement.sharding = ShardingOf(zero, worker);
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker, placement));
  Model& model = run->model();
  ASSIGN_OR_RETURN(std::unique_ptr<FullyShardedDataParallel> engine,
                   ShardModel(model, config, worker, zero));
  run->MeasureUnsharded([&] { return engine->unsharded_bytes(); });
  RETURN_IF_ERROR(run->Start(engine->Owned(), StateOf(*engine)));
  Optimizer& optimizer = run->optimizer();
  const Objective& objective = run->objective();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      model.set_dropout_seed(input.dropout_seeds[i]);
      // Only the last micro-batch's backward exchanges gradients; the others
      // add up locally.
      engine->SetSync(&batch == &input.micro_batches.back());
      input.clock.Begin(Phase::kForward);
      engine->BeforeForward();
      torch::Tensor share = objective.LossShare(batch, input.micro_batches);
      engine->BeforeBackward({share});
      input.clock.Begin(Phase::kBackward);
      share.backward();
      engine->AfterBackward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss, .complete = RecordUnitWaits(*engine)};
  });
}

absl::StatusOr<Parallelism> Divide(int) {
  return Parallelism{.zero = ZeroFromFlags()};
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetFlag(&FLAGS_zero, 3);  // the default of this trainer
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "fsdp",
       .usage =
           "Trains with sharded data parallelism (ZeRO 1 to 3, "
           "FullyShardedDataParallel).\n"
           "  bazel run //trainers:fsdp -- --nproc=2 --zero=3 --model=gpt\n"
           "  torchrun --no-python --nproc-per-node=2 "
           "bazel-bin/trainers/fsdp --zero=2\n"
           "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckSharding,
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
