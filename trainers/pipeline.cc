// Pipeline parallelism: every rank holds some layers, and a schedule orders the
// micro-batches that it runs through them. A rank is a process, or a device of
// this process. Compare with ddp.cc: forward and backward of all micro-batches
// are one call, in the step that all trainers with stages share
// (trainers/stages/mesh_trainer.cc). parallel/pipeline has the schedules and
// the engine that runs them.

#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/layout_flags.h"
#include "trainers/main.h"
#include "trainers/stages/mesh_trainer.h"

namespace rankwise {
namespace {

// Ranks along pp hold one or several stages each, those along dp are replicas.
absl::StatusOr<Parallelism> Divide(int world_size) {
  ASSIGN_OR_RETURN(const std::vector<c10::Device> devices, DevicesFromFlags());
  const PipelineConfig stages = StagesFromFlags();
  return Parallelism{.axes = PipelineAxes(stages, world_size),
                     .stages = stages,
                     .devices = devices};
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  return TrainOnMesh(config, worker, StagesFromFlags());
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
       .check_flags =
           [](const rankwise::TrainConfig& config) {
             return rankwise::CheckStages(config.model,
                                          rankwise::StagesFromFlags());
           },
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
