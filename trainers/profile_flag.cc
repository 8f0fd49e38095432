#include "trainers/profile_flag.h"

#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/profile/layer_profile.h"

TRAINER_FLAG(kOutput, bool, profile, false,
             "after training, time each layer's forward and backward and "
             "compare them with the device's peak (docs/metrics.md)");

namespace rankwise {

absl::Status ProfileIfRequested(const TrainConfig& config, TrainingRun& run) {
  if (!absl::GetFlag(FLAGS_profile)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(config.model));
  DataLoader& loader = *run.data().train.loader;
  RETURN_IF_ERROR(loader.Resume({/*epoch=*/1, /*position=*/0}));
  ASSIGN_OR_RETURN(const std::vector<Batch> batches, NextBatches(loader, 1));
  const std::vector<LayerRecord> layers =
      ProfileLayers({spec, run.model(), run.objective()}, batches.at(0),
                    {.precision = config.precision});
  run.Say(absl::StrCat("time of each layer, batch ", batches[0].target.size(0),
                       ", medians of passes:\n",
                       LayerTable(layers, config.output.peak)));
  for (const LayerRecord& layer : layers) {
    RETURN_IF_ERROR(run.Write(layer));
  }
  return absl::OkStatus();
}

}  // namespace rankwise
