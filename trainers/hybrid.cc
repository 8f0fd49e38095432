// All kinds of parallelism together: a mesh of ranks, pp x dp x cp x tp. A
// pipeline runs along pp, the ranks along tp and cp compute each of its stages,
// and gradients are averaged along dp. Compare with pipeline.cc, the special
// case --cp=1 --tp=1: cp and tp act inside the layers. Parallelize in
// trainers/stages/mesh_trainer.cc applies the axes in order.

#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layout_flags.h"
#include "trainers/main.h"
#include "trainers/stages/mesh_trainer.h"

namespace rankwise {
namespace {

PipelineConfig Stages() {
  PipelineConfig stages = StagesFromFlags();
  if (stages.ranks == 0) stages.ranks = 1;  // not the whole job
  return stages;
}

absl::StatusOr<Parallelism> Divide(int world_size) {
  const PipelineConfig stages = Stages();
  return Parallelism{.axes = PipelineAxes(stages, world_size),
                     .split = SplitFromFlags(stages.tensor),
                     .stages = stages};
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  return TrainOnMesh(config, worker, Stages());
}

absl::Status CheckFlags(const TrainConfig& config) {
  const PipelineConfig stages = Stages();
  RETURN_IF_ERROR(CheckMesh(stages));
  RETURN_IF_ERROR(CheckSplit(config.model, SplitFromFlags(stages.tensor)));
  RETURN_IF_ERROR(CheckSharding(config));
  return CheckStages(config.model, stages);
}

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
       .check_flags = rankwise::CheckFlags,
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
