#include "trainers/model_parallel_flags.h"

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/comm_flags.h"
#include "parallel/comm/rank_env.h"
#include "trainers/stage_devices.h"
#include "trainers/stage_flags.h"

ABSL_FLAG(std::string, devices, "",
          "in one process: the device of each stage, such as cuda:0,cuda:1; "
          "each cpu is a slot that runs the same code; empty: cpu,cpu. Not "
          "with --nproc above 1, where every rank is a stage");

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);

namespace rankwise {
namespace {

absl::Status BadDevices(const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--devices=", absl::GetFlag(FLAGS_devices), ": ", why));
}

absl::Status CheckProcessPerStage(int nproc) {
  if (!absl::GetFlag(FLAGS_devices).empty()) {
    return BadDevices(
        "is a model cut within one process; leave it out where every stage is "
        "a process, or leave out --nproc and other launchers");
  }
  // As a rank of an outer launcher: a stage by itself.
  return nproc > 1 ? CheckSplitFits(nproc) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> StageDevicesFromFlags() {
  const std::string given = absl::GetFlag(FLAGS_devices);
  absl::StatusOr<std::vector<c10::Device>> devices =
      ParseStageDevices(given.empty() ? "cpu,cpu" : given);
  if (devices.ok() && devices->size() < 2)
    return BadDevices("model parallelism needs two devices at least");
  return devices;
}

absl::Status CheckModelParallelFlags() {
  absl::Status backend = CheckBackendOfStages();
  if (!backend.ok()) return backend;
  if (absl::GetFlag(FLAGS_check_divergence_every) != 0) {
    return absl::InvalidArgumentError(
        "--check_divergence_every: there is one copy of the model, nothing to "
        "compare it with");
  }
  const int nproc = absl::GetFlag(FLAGS_nproc);
  if (nproc > 1 || InsideLauncher()) return CheckProcessPerStage(nproc);
  absl::StatusOr<std::vector<c10::Device>> devices = StageDevicesFromFlags();
  if (!devices.ok()) return devices.status();
  return CheckSplitFits(static_cast<int>(devices->size()));
}

PipelineConfig ModelParallelConfigFromFlags(const TrainConfig& config) {
  PipelineConfig pipeline;
  pipeline.schedule = "naive";
  pipeline.micro_batches = config.accumulate;
  pipeline.split = SplitFromFlags();
  return pipeline;
}

}  // namespace rankwise
