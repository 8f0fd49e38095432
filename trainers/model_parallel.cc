// Manual model parallelism: the layers are cut over devices, which work in
// turn. It is a pipeline with the naive schedule (compare with pipeline.cc), in
// one process over several devices or with a process per stage.

#include <memory>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/main.h"
#include "trainers/stage_flags.h"
#include "trainers/stages/pipeline_run.h"

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);

namespace rankwise {
namespace {

PipelineConfig StagesOf(const TrainConfig& config) {
  PipelineConfig pipeline;
  pipeline.schedule = "naive";
  pipeline.micro_batches = config.accumulate;
  pipeline.split = SplitFromFlags();
  return pipeline;
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineRun> run,
                   PipelineRun::Create(config, worker, StagesOf(config)));
  PipelineStages& stages = run->stages();
  Optimizer& optimizer = run->optimizer();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(auto step, run->Begin(input));
    input.clock.Begin(Phase::kSchedule);
    // Forward from the first stage to the last, and backward again.
    step->ranks = stages.Run(*step->schedule);
    // There are no replicas: only of weights that two stages share.
    auto exposed = stages.ExchangeGradients();
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return run->End(input, std::move(step), std::move(exposed));
  });
}

// A process per stage, or one for all.
std::vector<MeshAxis> Axes(int world_size) { return {{"pp", world_size}}; }

absl::StatusOr<std::vector<c10::Device>> Devices(int world_size) {
  if (world_size > 1) return std::vector<c10::Device>();
  ASSIGN_OR_RETURN(std::vector<c10::Device> devices,
                   StageDevicesFromFlags(/*without=*/"cpu,cpu"));
  if (devices.size() < 2)
    return BadDevices("model parallelism needs two devices at least");
  return devices;
}

// Before any rank is started.
absl::Status CheckFlags() {
  RETURN_IF_ERROR(CheckBackendOfStages());
  if (absl::GetFlag(FLAGS_check_divergence_every) != 0) {
    return absl::InvalidArgumentError(
        "--check_divergence_every: there is one copy of the model, nothing to "
        "compare it with");
  }
  const int nproc = absl::GetFlag(FLAGS_nproc);
  if (nproc == 1 && !InsideLauncher()) {
    ASSIGN_OR_RETURN(std::vector<c10::Device> devices, Devices(nproc));
    return CheckSplitFits(static_cast<int>(devices.size()));
  }
  if (DevicesGiven()) {
    return BadDevices(
        "is a model cut within one process; leave it out where every stage is "
        "a process, or leave out --nproc and other launchers");
  }
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  // The only rank of another launcher runs all stages in its process.
  return ranks > 1 ? CheckSplitFits(ranks) : absl::OkStatus();
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "model_parallel",
       .usage = "Trains a model cut over several devices, which work in turn.\n"
                "  bazel run //trainers:model_parallel -- --model=mp_mlp "
                "--split=2\n"
                "  bazel run //trainers:model_parallel -- --nproc=2 "
                "--model=mp_mlp\n"
                "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckFlags,
       .axes = rankwise::Axes,
       .stages = rankwise::StagesOf,
       .devices = rankwise::Devices,
       .run = rankwise::Run});
}
