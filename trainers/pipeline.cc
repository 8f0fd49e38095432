// Pipeline parallelism: every rank holds some layers, and a schedule says in
// which order it runs micro-batches through them. A rank is a process, or a
// device of this one. Compare with ddp.cc: forward and backward of all
// micro-batches are one call. parallel/pipeline has the schedules and the
// engine that runs them, trainers/stages the model's stages.

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/main.h"
#include "trainers/stage_flags.h"
#include "trainers/stages/pipeline_run.h"

namespace rankwise {
namespace {

PipelineConfig StagesOf(const TrainConfig&) {
  return PipelineConfigFromFlags();
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineRun> run,
                   PipelineRun::Create(config, worker, StagesOf(config)));
  PipelineStages& stages = run->stages();
  Optimizer& optimizer = run->optimizer();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(auto step, run->Begin(input));
    input.clock.Begin(Phase::kSchedule);
    PendingDuration buffers = stages.BroadcastBuffers();
    // This rank's forwards and backwards in the schedule's order, with the
    // messages between them. The average over replicas begins with the stage
    // whose gradients are complete first.
    step->ranks = stages.Run(*step->schedule);
    auto exposed = stages.ExchangeGradients();
    exposed["dp"] += std::move(buffers);
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return run->End(input, std::move(step), std::move(exposed));
  });
}

std::vector<MeshAxis> Axes(int world_size) {
  return PipelineAxes(PipelineConfigFromFlags(), world_size);
}

absl::StatusOr<std::vector<c10::Device>> Devices(int) {
  return StageDevicesFromFlags(/*without=*/"");
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "pipeline",
       .usage = "Trains with pipeline parallelism (one rank per group of "
                "stages).\n"
                "  bazel run //trainers:pipeline -- --nproc=2 --schedule=1f1b "
                "--microbatches=8 --model=gpt\n"
                "  bazel run //trainers:pipeline -- --nproc=4 --pp=2 --dp=2\n"
                "  bazel run //trainers:pipeline -- --devices=cuda:0,cuda:1\n"
                "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckPipelineFlags,
       .axes = rankwise::Axes,
       .stages = rankwise::StagesOf,
       .devices = rankwise::Devices,
       .run = rankwise::Run});
}
