#include "trainers/stages/mesh_trainer.h"

#include <utility>

#include "third_party/absl/status_macros.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/stages/pipeline_run.h"

namespace rankwise {

absl::StatusOr<MeshModel> Parallelize(const TrainConfig& config,
                                      const Worker& worker,
                                      const PipelineConfig& pipeline) {
  MeshModel mesh;
  // pp: chooses this rank's layers and the order of the ranks' work.
  ASSIGN_OR_RETURN(mesh.plan, PipelinePlan::Create(config, worker, pipeline));
  // tp and cp: draws these layers whole, from the seed, and keeps this rank's
  // part of each one's weights, with its communication groups (ParallelOf in
  // trainers/loop/mesh_use.cc, LayerSpec::build).
  ASSIGN_OR_RETURN(mesh.training,
                   TrainingRun::Create(config, worker, mesh.plan->Placement()));
  Model& model = mesh.training->model();
  NamedTensors owned = TrainableParameters(model);
  ShardedState state;
  // dp with --zero: this rank owns some rows of each parameter, and gathers the
  // others while a layer computes.
  if (pipeline.zero.sharding.stage > 0) {
    ZeroConfig zero = pipeline.zero;
    zero.sharding.interleave_micro_batches = true;
    ASSIGN_OR_RETURN(mesh.sharded, ShardModel(model, config, worker, zero));
    FullyShardedDataParallel* const engine = mesh.sharded.get();
    mesh.training->MeasureUnsharded(
        [engine] { return engine->unsharded_bytes(); });
    owned = engine->Owned();
    state = StateOf(*engine);
  }
  // The layers become stages that exchange activations along pp, and whose
  // gradients are averaged along dp and cp, by the engine if there is one.
  mesh.stages = std::make_unique<PipelineStages>(
      config, worker, *mesh.plan, model, *mesh.training->data().train.dataset,
      mesh.sharded.get());
  // The optimizer owns this rank's parameters; Start restores into them.
  RETURN_IF_ERROR(mesh.training->Start(owned, std::move(state)));
  MemoryMeter* const memory = mesh.training->memory_meter();
  if (memory != nullptr)
    mesh.stages->CallAfterForward([memory] { memory->AfterStageForward(); });
  return mesh;
}

absl::Status TrainOnMesh(const TrainConfig& config, const Worker& worker,
                         const PipelineConfig& pipeline) {
  ASSIGN_OR_RETURN(const MeshModel mesh, Parallelize(config, worker, pipeline));
  ASSIGN_OR_RETURN(std::unique_ptr<PipelineRun> run,
                   PipelineRun::Create(config, worker, mesh));
  PipelineStages& stages = *mesh.stages;
  Optimizer& optimizer = mesh.training->optimizer();

  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(auto step, run->Begin(input));
    input.clock.Begin(Phase::kSchedule);
    PendingDuration buffers = stages.BroadcastBuffers();
    // Runs this rank's forwards and backwards in the schedule's order, with the
    // messages between them. Averaging over replicas begins with the stage
    // whose gradients are complete first.
    step->ranks = stages.Run(*step->schedule);
    auto exposed = stages.ExchangeGradients();
    exposed["dp"] += std::move(buffers);
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return run->End(input, std::move(step), std::move(exposed));
  });
}

}  // namespace rankwise
