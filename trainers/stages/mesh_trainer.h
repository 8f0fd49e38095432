// The trainer behind pipeline, hybrid and model_parallel: a model divided over
// a mesh of ranks, pp x dp x cp x tp, and its step.
#ifndef RANKWISE_TRAINERS_STAGES_MESH_TRAINER_H_
#define RANKWISE_TRAINERS_STAGES_MESH_TRAINER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/sharded/fully_sharded.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/stages/pipeline_plan.h"
#include "trainers/stages/pipeline_stages.h"

namespace rankwise {

// This rank's part of the model, ready to train. Later members use earlier
// ones.
struct MeshModel {
  std::unique_ptr<PipelinePlan> plan;
  std::unique_ptr<TrainingRun> training;
  std::unique_ptr<FullyShardedDataParallel> sharded;  // may be nullptr
  std::unique_ptr<PipelineStages> stages;
};

// Divides the model that `config` names among the ranks of `worker.mesh`.
// `config` and `worker` must outlive the result. Collective over all ranks.
// InvalidArgument if ranks, stages, layers and schedule do not fit.
absl::StatusOr<MeshModel> Parallelize(const TrainConfig& config,
                                      const Worker& worker,
                                      const PipelineConfig& pipeline);

// Trains to the end of `config`. Errors: Parallelize's and TrainingRun's.
absl::Status TrainOnMesh(const TrainConfig& config, const Worker& worker,
                         const PipelineConfig& pipeline);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_MESH_TRAINER_H_
