// Data parallelism in one process, like torch.nn.DataParallel: a thread and a
// device per replica. Compare with ddp.cc, whose ranks are equals: here the
// first device holds the weights, scatters, gathers and runs the update alone,
// while the others wait.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/replicated/replicated_model.h"
#include "third_party/absl/status_macros.h"
#include "trainers/data_parallel_flags.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"

namespace rankwise {
namespace {

// Returns the run's model, and a copy of it for each other device.
absl::StatusOr<std::vector<Objective>> MakeReplicas(const TrainConfig& config,
                                                    const Worker& worker,
                                                    Model& model) {
  ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(config.model));
  std::vector<Objective> replicas;
  for (const c10::Device& device : worker.devices) {
    std::shared_ptr<Model> replica =
        std::dynamic_pointer_cast<Model>(model.shared_from_this());
    if (!replicas.empty()) {
      replica = std::make_shared<Model>(spec);
      ToChannelsLast(*replica);
      replica->to(device);
    }
    replicas.emplace_back(std::move(replica), spec.loss, config.precision,
                          device);
  }
  return replicas;
}

ReplicatedModel MakeEngine(const Worker& worker,
                           const std::vector<Objective>& replicas) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const Objective& replica : replicas)
    modules.push_back(replica.model().shared_from_this());
  return ReplicatedModel(std::move(modules),
                         {worker.devices, KeepsCopiesByFlag()});
}

std::vector<Batch> Scatter(const ReplicatedModel& engine, const Batch& batch,
                           bool with_targets) {
  std::vector<Batch> parts;
  for (torch::Tensor& data : engine.Scatter(batch.data))
    parts.push_back({std::move(data), {}});
  if (!with_targets) return parts;
  size_t i = 0;
  for (torch::Tensor& target : engine.Scatter(batch.target))
    parts[i++].target = std::move(target);
  return parts;
}

std::string Describe(const Worker& worker) {
  const auto name = [](std::string* out, const c10::Device& device) {
    absl::StrAppend(out, device.str());
  };
  return absl::StrCat("replicas on ", absl::StrJoin(worker.devices, ", ", name),
                      ", ",
                      KeepsCopiesByFlag() ? "made once" : "made at every step",
                      "; ", GathersLossesByFlag() ? "losses" : "outputs",
                      " are gathered on ", worker.devices[0].str());
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ModelPlacement placement;
  placement.replicas = static_cast<int>(worker.devices.size());
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker, placement));
  ASSIGN_OR_RETURN(const std::vector<Objective> replicas,
                   MakeReplicas(config, worker, run->model()));
  ReplicatedModel engine = MakeEngine(worker, replicas);
  RETURN_IF_ERROR(run->Start(TrainableParameters(run->model())));
  run->Say(Describe(worker));
  Optimizer& optimizer = run->optimizer();
  const bool gathers_losses = GathersLossesByFlag();

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      const Batch& batch = input.micro_batches[i];
      input.clock.Begin(Phase::kScatter);
      const std::vector<Batch> parts = Scatter(engine, batch, gathers_losses);
      input.clock.Begin(Phase::kReplicate);
      engine.Replicate(parts.size());
      input.clock.Begin(Phase::kForward);
      const auto outputs = engine.Forward(parts.size(), [&](size_t r) {
        replicas[r].model().set_dropout_seed(
            DropoutSeed(config.seed, input.step, static_cast<int>(r),
                        static_cast<int64_t>(i)));
        // Not LossShare, because every replica casts its own weights.
        return gathers_losses
                   ? ShareOfMean(replicas[r].Loss(parts[r]), parts[r], parts)
                   : replicas[r].Output(parts[r].data);
      });
      input.clock.Begin(Phase::kGather);
      const torch::Tensor gathered = engine.Gather(outputs);
      input.clock.Begin(Phase::kLoss);
      const torch::Tensor share = ShareOfMean(
          gathers_losses ? gathered.sum()
                         : replicas[0].LossOf(gathered, batch.target),
          batch, input.micro_batches);
      optimizer.ScaledLoss(share).backward();
      input.clock.Begin(Phase::kScatterGradient);
      const auto gradients = engine.ScatterGradient(gathered.grad(), outputs);
      input.clock.Begin(Phase::kBackward);
      engine.Backward(outputs, gradients);
      input.clock.Begin(Phase::kReduce);
      engine.Reduce(parts.size());
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss};
  };

  return run->Train(step, [&](TrainingData& data, int64_t epoch) {
    return Evaluate(
        replicas[0], data, worker, epoch, [&](const torch::Tensor& input) {
          const auto parts = engine.Scatter(input);
          engine.Replicate(parts.size());
          return engine.Gather(engine.Forward(parts.size(), [&](size_t r) {
            return replicas[r].Output(parts[r]);
          }));
        });
  });
}

absl::StatusOr<Parallelism> Divide(int) {
  ASSIGN_OR_RETURN(const std::vector<c10::Device> devices,
                   ReplicaDevicesFromFlags());
  return Parallelism{.devices = devices};
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "data_parallel",
       .usage = "Trains replicas in one process, as torch.nn.DataParallel "
                "does.\n"
                "  bazel run //trainers:data_parallel -- --replicas=2 "
                "--epochs=1\n"
                "  bazel run //trainers:data_parallel -- --gather=loss "
                "--replicate=once\n"
                "All flags: --help",
       .check_flags = rankwise::CheckDataParallelFlags,
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
