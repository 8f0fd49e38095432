// Manual model parallelism: the layers are cut over devices, which work in
// turn. In one process over several devices (local_model_parallel.cc), or with
// a process per stage, where it is a pipeline with the naive schedule.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/local_model_parallel.h"
#include "trainers/main.h"
#include "trainers/model_parallel_flags.h"
#include "trainers/pipeline_run.h"

namespace rankwise {
namespace {

absl::Status RunInOneProcess(const TrainConfig& config, const Worker& worker) {
  absl::StatusOr<std::vector<torch::Device>> devices = StageDevicesFromFlags();
  if (!devices.ok()) return devices.status();
  Worker placed = worker;
  placed.device = devices->front();
  placed.devices = *devices;
  absl::StatusOr<std::unique_ptr<LocalModelParallel>> run =
      LocalModelParallel::Create(config, placed,
                                 ModelParallelConfigFromFlags(config).split);
  return run.ok() ? (*run)->Train() : run.status();
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  if (worker.env.world_size == 1) return RunInOneProcess(config, worker);
  absl::StatusOr<std::unique_ptr<PipelineRun>> run =
      PipelineRun::Create(config, worker, ModelParallelConfigFromFlags(config));
  return run.ok() ? (*run)->Train() : run.status();
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
       .check_flags = rankwise::CheckModelParallelFlags,
       .run = rankwise::Run});
}
