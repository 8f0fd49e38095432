// Cutting a model where its layers' measured times balance.
#ifndef RANKWISE_TRAINERS_STAGE_PROFILE_H_
#define RANKWISE_TRAINERS_STAGE_PROFILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainers/config.h"
#include "trainers/models/model.h"
#include "trainers/models/profile.h"
#include "trainers/worker.h"

namespace rankwise {

struct ModelSplit {
  std::vector<LayerRange> stages;
  std::vector<LayerProfile> profile;  // by layer; empty if none was made here
};

// `split` as in PipelineConfig. For "time" the first rank builds the whole
// model, runs its first micro-batch through it a few times, and tells the other
// ranks what each layer took; collective then.
absl::StatusOr<ModelSplit> SplitModel(const TrainConfig& config,
                                      const ModelSpec& model,
                                      const Worker& worker,
                                      const std::string& split, int num_stages);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGE_PROFILE_H_
