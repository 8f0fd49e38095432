// Manual model parallelism: the layers are cut over devices, which work in
// turn. It is a pipeline with the naive schedule (compare with pipeline.cc), in
// one process over several devices or with a process per stage.

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/layout_flags.h"
#include "trainers/main.h"
#include "trainers/stages/mesh_trainer.h"

ABSL_DECLARE_FLAG(int64_t, accumulate);

namespace rankwise {
namespace {

// Each micro-batch passes all stages, forward and backward, before the next.
PipelineConfig Stages() {
  PipelineConfig stages = StagesFromFlags();
  stages.schedule = "naive";
  stages.micro_batches = absl::GetFlag(FLAGS_accumulate);
  return stages;
}

// One process per stage, or one for all stages, by default on two CPU slots.
absl::StatusOr<Parallelism> Divide(int world_size) {
  Parallelism parallelism{.axes = {{"pp", world_size}}, .stages = Stages()};
  if (world_size > 1) return parallelism;
  ASSIGN_OR_RETURN(parallelism.devices, DevicesFromFlags());
  if (!DevicesGiven()) parallelism.devices.assign(2, c10::kCPU);
  if (parallelism.devices.size() < 2)
    return BadDevices("model parallelism needs two devices at least");
  return parallelism;
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  return TrainOnMesh(config, worker, Stages());
}

absl::Status CheckFlags(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  ASSIGN_OR_RETURN(const Parallelism parallelism, Divide(ranks));
  return ranks > 1 || DevicesGiven()
             ? CheckStages(config.model, Stages())
             : CheckCuts(config.model,
                         static_cast<int>(parallelism.devices.size()));
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
       .divide = rankwise::Divide,
       .run = rankwise::Run});
}
