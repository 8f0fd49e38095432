#include "trainers/stage_devices.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/device/device_facts.h"

namespace rankwise {
namespace {

absl::Status Missing(absl::string_view name) {
  const int found = VisibleGpus();
  const std::string there =
      found == 0 ? WhyNoGpu()
                 : absl::StrCat("cuda:0 to cuda:", found - 1, " are");
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(name), " is not there: ", found,
      found == 1 ? " GPU" : " GPUs", " can be used here (", there, ")"));
}

absl::StatusOr<c10::Device> ParseDevice(absl::string_view name) {
  if (name == "cpu") return c10::Device(c10::kCPU);
  const size_t colon = name.find(':');
  int index = -1;
  if (name.substr(0, colon) != "cuda" || colon == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(colon + 1), &index) || index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", std::string(name), "\" is not a device; write cpu or cuda:N"));
  }
  if (index >= VisibleGpus()) return Missing(name);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> ParseStageDevices(
    absl::string_view text) {
  std::vector<c10::Device> devices;
  for (absl::string_view name : absl::StrSplit(text, ',')) {
    absl::StatusOr<c10::Device> device = ParseDevice(name);
    if (!device.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--devices=", std::string(text), ": ",
                       std::string(device.status().message())));
    }
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace rankwise
