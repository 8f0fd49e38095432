// How the flags divide a job's model among its ranks. A flag that a trainer
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

// Along pp: which stages, in which order of work; also the sizes of the mesh.
PipelineConfig StagesFromFlags();
// Within each layer: `tensor` ranks along tp, those of --cp along cp.
ModelSplit SplitFromFlags(int tensor);
// Along dp: what is sharded.
ZeroConfig ZeroFromFlags();

// --devices, by rank of a pipeline in one process or by replica.
bool DevicesGiven();
absl::StatusOr<std::vector<c10::Device>> DevicesFromFlags();
absl::Status BadDevices(const std::string& why);

// Whether schedule, stages and ranks fit, in one process or several.
absl::Status CheckStages(const ModelConfig& model,
                         const PipelineConfig& config);
// Whether --mesh_order names all axes, and copies of the model fill --nproc.
absl::Status CheckMesh(const PipelineConfig& config);
// Whether --split cuts the model into that many stages.
absl::Status CheckCuts(const ModelConfig& model, int stages);
// Whether the layers of the model can be divided so.
absl::Status CheckSplit(ModelConfig model, const ModelSplit& split);
// Whether --units can be read, and --shard_ranks divides the ranks.
absl::Status CheckSharding(const TrainConfig&);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYOUT_FLAGS_H_
