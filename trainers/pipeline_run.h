// Training with a model cut into stages: the mesh of ranks, the schedule, this
// rank's stages, and one optimizer step over them.
#ifndef RANKWISE_TRAINERS_PIPELINE_RUN_H_
#define RANKWISE_TRAINERS_PIPELINE_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/mesh.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/replica_gradients.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/trace/chrome_trace.h"
#include "trainers/config.h"
#include "trainers/model_stage.h"
#include "trainers/models/model.h"
#include "trainers/models/profile.h"
#include "trainers/pipeline_config.h"
#include "trainers/pipeline_meter.h"
#include "trainers/training_run.h"
#include "trainers/worker.h"

namespace rankwise {

// Not thread-safe. Every method is collective over all ranks.
class PipelineRun {
 public:
  // `config.accumulate` is replaced by the pipeline's micro-batches.
  // InvalidArgument where ranks, stages, layers and schedule do not fit.
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Create(
      const TrainConfig& config, const Worker& worker,
      const PipelineConfig& pipeline);

  ~PipelineRun();

  // Trains to the end of the configuration, then says how busy the stages were.
  absl::Status Train();

 private:
  PipelineRun(const TrainConfig& config, const Worker& worker,
              const PipelineConfig& pipeline);
  absl::Status LayOut();
  absl::Status CutIntoStages();
  absl::Status CreateTraining();
  void FindSharedWeights();
  absl::Status ConnectStages();

  absl::StatusOr<StepOutcome> Step(const StepInput& input);
  absl::Status Finish();
  std::vector<TraceSpan> TraceOf(const std::vector<Span>& spans) const;
  absl::StatusOr<std::vector<TraceProcess>> PredictedTrace();
  double AddUpTiedGradients();
  absl::StatusOr<EvalRecord> EvaluateTestSet(TrainingData& data, int64_t epoch);

  // The schedule of a step of so many micro-batches; fewer at an epoch's end.
  absl::StatusOr<const Schedule*> ScheduleFor(size_t micro_batches);
  int RankOf(size_t layer) const;  // of the pipeline
  // Whether the executor's spans are when the device computed.
  bool TimesHold() const { return worker_.device.is_cpu(); }

  TrainConfig config_;
  Worker worker_;
  const PipelineConfig pipeline_;
  ModelSpec spec_;
  std::vector<LayerProfile> profile_;     // of the layers, where one was made
  std::vector<LayerRange> stage_layers_;  // of all stages
  std::map<size_t, Schedule> schedules_;  // with communication
  std::unique_ptr<DeviceMesh> mesh_;
  std::unique_ptr<TrainingRun> training_;
  std::vector<std::unique_ptr<ModelStage>> stages_;  // null: another rank's
  // Weights that a stage shares with another one: of this rank, whose gradient
  // is complete after both, or of a peer, who holds the other copy.
  struct SharedWeight {
    torch::Tensor weight;
    int peer;  // in the communicator's group
    int tag;
  };
  std::vector<torch::Tensor> shared_here_;
  std::vector<SharedWeight> shared_with_peers_;
  // By stage: without those shared here.
  std::vector<std::vector<torch::Tensor>> own_parameters_;
  std::optional<ReplicaGradients> replica_gradients_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::optional<PipelineMeter> meter_;
  double traced_start_seconds_ = 0;  // of the last full step that was traced
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_RUN_H_
