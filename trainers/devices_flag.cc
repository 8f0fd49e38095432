#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/stage_flags.h"
#include "trainers/stages/pipeline_plan.h"

TRAINER_FLAG(
    kLayout, std::string, devices, "",
    "run the whole model in this process, with each rank of its pipeline, or "
    "each replica of data_parallel, on one of these: cuda:0,cuda:1; each cpu "
    "is "
    "a slot that runs the same code. Empty, for model_parallel without "
    "--nproc: "
    "cpu,cpu");

namespace rankwise {

bool DevicesGiven() { return !absl::GetFlag(FLAGS_devices).empty(); }

absl::StatusOr<std::vector<c10::Device>> StageDevicesFromFlags(
    const std::string& without) {
  const std::string given =
      DevicesGiven() ? absl::GetFlag(FLAGS_devices) : without;
  if (given.empty()) return std::vector<c10::Device>();
  ASSIGN_OR_RETURN(std::vector<c10::Device> devices, ParseStageDevices(given));
  for (const c10::Device& device : devices) {
    if (device.type() != devices.front().type()) {
      return BadDevices(
          "cpu and cuda do not mix: the host would wait for every message");
    }
  }
  return devices;
}

absl::Status BadDevices(const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--devices=", absl::GetFlag(FLAGS_devices), ": ", why));
}

}  // namespace rankwise
