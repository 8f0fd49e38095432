// Data parallelism: every rank holds the whole model, trains on its share of
// each batch, and averages gradients with the others while backward is still
// running. Compare with single.cc: what differs is the engine around forward
// and backward.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/ddp/model_state.h"
#include "third_party/absl/status_macros.h"
#include "trainers/ddp_flags.h"
#include "trainers/graphs/captured_step.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"

namespace rankwise {
namespace {

// Before a step is captured: PyTorch's Reducer rebuilds its buckets after the
// first step and reads the device's clock in the first ten.
constexpr int64_t kWarmUpStepsOfDdp = 11;

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker));
  Model& model = run->model();
  const Group& replicas = worker.mesh->group("dp");
  ASSIGN_OR_RETURN(
      const std::string norms,
      SyncBatchNormIfRequested(model, replicas, config.skip_communication));
  if (!norms.empty()) run->Say(norms);
  ASSIGN_OR_RETURN(const ChosenAllReduce reduce,
                   AllReduceFromFlags(replicas, config.skip_communication));
  if (!reduce.line.empty()) run->Say(reduce.line);
  const auto make_engine = [&] {
    return MakeEngine(model, reduce.group, config.skip_communication);
  };
  ASSIGN_OR_RETURN(std::unique_ptr<DataParallelEngine> engine, make_engine());
  run->KeepEngine(
      {[&] { return engine->BucketOrder(); },
       [&](const std::string& order) { engine->UseBucketOrder(order); },
       /*own_buffers=*/!BroadcastsBuffersByFlag()});
  RETURN_IF_ERROR(run->Start(TrainableParameters(model)));
  Optimizer& optimizer = run->optimizer();
  const Objective& objective = run->objective();

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
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
  const StepFunction captured = CaptureIfRequested(
      config, worker, *run,
      {.step = step,
       .warm_up_steps = kWarmUpStepsOfDdp,
       // A Reducer cannot be used again after half a backward.
       .recover = [&]() -> absl::Status {
         ASSIGN_OR_RETURN(engine, make_engine());
         return absl::OkStatus();
       }});

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(StepOutcome outcome, captured(input));
    const int64_t check_every = config.check_divergence_every;
    if (check_every > 0 && input.step % check_every == 0) {
      RETURN_IF_ERROR(CheckDivergence(model, replicas));
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
       .run = rankwise::Run});
}
