// Pipeline parallelism: every rank holds some layers, and a schedule says in
// which order it runs micro-batches through them. A rank is a process, or a
// device of this one. trainers/stages/pipeline_run.cc has the step,
// parallel/pipeline the schedules.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/main.h"
#include "trainers/pipeline_flags.h"
#include "trainers/stage_flags.h"
#include "trainers/stages/pipeline_run.h"

namespace rankwise {
namespace {

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<PipelineRun> run,
      PipelineRun::Create(config, worker, PipelineConfigFromFlags()));
  return run->Train();
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
       .devices = rankwise::Devices,
       .run = rankwise::Run});
}
