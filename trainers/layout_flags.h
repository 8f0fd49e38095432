// Division of a job's model among its ranks by flags. A flag that a trainer
// lacks (flags/) counts as its default, which divides nothing. The checks run
// before any rank starts and return InvalidArgument.
#ifndef RANKWISE_TRAINERS_LAYOUT_FLAGS_H_
#define RANKWISE_TRAINERS_LAYOUT_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/models/division.h"
#include "trainers/models/model.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

// Along pp: stages and schedule; also the sizes of the mesh's axes.
PipelineConfig StagesFromFlags();
// Within each layer: `tensor` ranks along tp, --cp ranks along cp.
ModelSplit SplitFromFlags(int tensor);
// Along dp: sharding.
ZeroConfig ZeroFromFlags();

// --devices, ordered by pipeline rank in one process or by replica.
bool DevicesGiven();
absl::StatusOr<std::vector<c10::Device>> DevicesFromFlags();
absl::Status BadDevices(const std::string& why);

// Checks that schedule, stages and ranks fit, in one process or several.
absl::Status CheckStages(const ModelConfig& model,
                         const PipelineConfig& config);
// Checks that --mesh_order names all axes, and whole copies fill --nproc.
absl::Status CheckMesh(const PipelineConfig& config);
// Checks that --split can cut the model into `stages` stages.
absl::Status CheckCuts(const ModelConfig& model, int stages);
// Checks that the model's layers can be divided by `split`.
absl::Status CheckSplit(ModelConfig model, const ModelSplit& split);
// Checks that --units is valid and --shard_ranks divides the ranks.
absl::Status CheckSharding(const TrainConfig&);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYOUT_FLAGS_H_
