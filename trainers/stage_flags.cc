#include "trainers/stage_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "parallel/launch/comm_flags.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/models/model.h"
#include "trainers/stages/pipeline_plan.h"

TRAINER_FLAG(kLayout, std::string, split, "flops",
             "where to cut: layers, parameters, flops, time (balanced; time is "
             "profiled), or the first layer of each later stage, as in 2,5");
TRAINER_FLAG(
    kLayout, std::string, devices, "",
    "run the whole model in this process, each rank of its pipeline on "
    "one of these: cuda:0,cuda:1; each cpu is a slot that runs the same "
    "code. Of model_parallel without --nproc, empty: cpu,cpu");

namespace rankwise {

std::string SplitFromFlags() { return absl::GetFlag(FLAGS_split); }

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

absl::Status CheckBackendOfStages() {
  if (absl::GetFlag(FLAGS_backend) != "fake") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--backend=fake: its ranks are only pretended and hand no activations "
      "on; //parallel/pipeline:show simulates a schedule");
}

absl::Status CheckSplitFits(int stages) {
  ASSIGN_OR_RETURN(TrainConfig train, TrainConfigFromFlags());
  ASSIGN_OR_RETURN(ModelSpec model, MakeModelSpec(train.model));
  // The cuts of a profile are known later; whether there are layers enough now.
  const std::string split = SplitFromFlags();
  return SplitModel(model, split == "time" ? "layers" : split, stages).status();
}

}  // namespace rankwise
