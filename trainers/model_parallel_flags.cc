#include "trainers/model_parallel_flags.h"

#include <cstddef>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/comm/comm_flags.h"
#include "parallel/comm/placement.h"
#include "parallel/comm/rank_env.h"
#include "trainers/stage_flags.h"

ABSL_FLAG(std::string, devices, "cpu,cpu",
          "in one process: the device of each stage, such as cuda:0,cuda:1; "
          "each cpu is a slot that runs the same code. With --nproc above 1 "
          "every rank is a stage and this is unused");

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);

namespace rankwise {
namespace {

absl::Status BadDevices(const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--devices=", absl::GetFlag(FLAGS_devices), ": ", why));
}

absl::StatusOr<c10::Device> ParseDevice(absl::string_view name) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  const size_t colon = name.find(':');
  int index = -1;
  if (name.substr(0, colon) != "cuda" || colon == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(colon + 1), &index) || index < 0) {
    return BadDevices(absl::StrCat("\"", std::string(name),
                                   "\" is not a device; write cpu or cuda:N"));
  }
  const int found = DetectHardware().gpus;
  if (index >= found) {
    return BadDevices(absl::StrCat(std::string(name), " is not there: ", found,
                                   " GPUs can be used here"));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> StageDevicesFromFlags() {
  std::vector<c10::Device> devices;
  for (absl::string_view name :
       absl::StrSplit(absl::GetFlag(FLAGS_devices), ',')) {
    absl::StatusOr<c10::Device> device = ParseDevice(name);
    if (!device.ok()) return device.status();
    devices.push_back(*device);
  }
  if (devices.size() < 2)
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
  if (nproc > 1) return CheckSplitFits(nproc);
  // As a rank of an outer launcher: a stage by itself, without --devices.
  if (InsideLauncher()) return absl::OkStatus();
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
