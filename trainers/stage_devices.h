// The devices of a model's parts, where one process uses several: --devices.
#ifndef RANKWISE_TRAINERS_STAGE_DEVICES_H_
#define RANKWISE_TRAINERS_STAGE_DEVICES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"

namespace rankwise {

// "cuda:0,cuda:1", or "cpu,cpu", where each cpu is a slot; they may repeat.
// InvalidArgument that names --devices for a device that this machine does not
// have, with how many there are, and for a word that is none.
absl::StatusOr<std::vector<c10::Device>> ParseStageDevices(
    absl::string_view text);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGE_DEVICES_H_
