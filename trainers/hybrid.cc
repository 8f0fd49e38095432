// All kinds of parallelism together: a mesh of ranks, pp x dp x cp x tp. A
// pipeline runs along pp, each of its stages is computed by the ranks along tp
// and cp, and gradients are averaged along dp. Compare with pipeline.cc, which
// is this with --cp=1 --tp=1: cp and tp are inside the layers.

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/main.h"
#include "trainers/split_flags.h"
#include "trainers/stages/pipeline_run.h"

namespace rankwise {
namespace {

PipelineConfig StagesOf(const TrainConfig&) { return HybridConfigFromFlags(); }

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineRun> run,
                   PipelineRun::Create(config, worker, StagesOf(config)));
  PipelineStages& stages = run->stages();
  Optimizer& optimizer = run->optimizer();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(auto step, run->Begin(input));
    input.clock.Begin(Phase::kSchedule);
    PendingDuration buffers = stages.BroadcastBuffers();
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
  return PipelineAxes(HybridConfigFromFlags(), world_size);
}

ModelSplit SplitModelFor(int) { return HybridSplitFromFlags(); }

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "hybrid",
       .usage = "Trains over a mesh of ranks, --pp x --dp x --cp x --tp; dp is "
                "what the others leave.\n"
                "  bazel run //trainers:hybrid -- --nproc=4 --pp=2 --tp=2 "
                "--model=gpt\n"
                "  bazel run //trainers:hybrid -- --nproc=4 --cp=2 "
                "--context=ulysses --model=gpt\n"
                "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckHybridFlags,
       .axes = rankwise::Axes,
       .split = rankwise::SplitModelFor,
       .stages = rankwise::StagesOf,
       .run = rankwise::Run});
}
