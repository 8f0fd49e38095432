#include "trainers/stage_flags.h"

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "parallel/comm/comm_flags.h"
#include "trainers/flags.h"
#include "trainers/models/model.h"
#include "trainers/stage_split.h"

ABSL_FLAG(std::string, split, "flops",
          "where to cut: layers, parameters, flops, time (balanced; time is "
          "profiled), or the first layer of each later stage, as in 2,5");

namespace rankwise {

std::string SplitFromFlags() { return absl::GetFlag(FLAGS_split); }

absl::Status CheckBackendOfStages() {
  if (absl::GetFlag(FLAGS_backend) != "fake") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--backend=fake: its ranks are only pretended and hand no activations "
      "on; //parallel/pipeline:show simulates a schedule");
}

absl::Status CheckSplitFits(int stages) {
  absl::StatusOr<TrainConfig> train = TrainConfigFromFlags();
  if (!train.ok()) return train.status();
  absl::StatusOr<ModelSpec> model = MakeModelSpec(train->model);
  if (!model.ok()) return model.status();
  // The cuts of a profile are known later; whether there are layers enough now.
  const std::string split = SplitFromFlags();
  return SplitByFacts(*model, split == "time" ? "layers" : split, stages)
      .status();
}

}  // namespace rankwise
