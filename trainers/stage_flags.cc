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

namespace rankwise {

std::string SplitFromFlags() { return absl::GetFlag(FLAGS_split); }

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
