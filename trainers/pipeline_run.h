// Training with a model cut into stages: the mesh of ranks, the schedule, this
// process's stages, and one optimizer step over them.
#ifndef RANKWISE_TRAINERS_PIPELINE_RUN_H_
#define RANKWISE_TRAINERS_PIPELINE_RUN_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/mesh.h"
#include "parallel/device/later_seconds.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/local_executor.h"
#include "parallel/pipeline/replica_gradients.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/step_in_flight.h"
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

// A rank per process, or, where worker.devices names some, all ranks of one
// pipeline in this process, each on its device.
//
// On an accelerator a step's times are read once the device is past it, when
// the host looks again: at the next step, or where it waits anyway. It waits
// for them in the few steps in which ranks exchange costs
// (PipelineMeter::IsDue), in those that are traced, and at the end. Not
// thread-safe. Every method is collective over all ranks.
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
  // A step whose times have not all been taken in.
  struct StepState {
    int64_t number = 0;
    const Schedule* schedule = nullptr;
    std::vector<StepInFlight> in_flight;  // as ranks_
    std::vector<ExecutorStep> read;       // empty until read
  };

  PipelineRun(const TrainConfig& config, const Worker& worker,
              const PipelineConfig& pipeline);
  absl::Status LayOut();
  absl::Status LayOutProcesses();
  absl::Status CutIntoStages();
  absl::Status CreateTraining();
  ModelStageConfig StageConfig(size_t stage) const;
  void FindOutputTypes(const std::vector<int>& stages_here);
  void FindSharedWeights();
  absl::Status ConnectStages();
  LinkCosts ConnectProcesses(std::vector<Stage*> stages, int64_t bytes);
  LinkCosts ConnectDevices(std::vector<Stage*> stages, int64_t bytes);
  void ShareNorm();

  absl::StatusOr<StepOutcome> Step(const StepInput& input);
  void BeginStages(const StepInput& input);
  std::vector<StepInFlight> RunSchedule(const Schedule& schedule);
  LaterSeconds ExchangeGradients();
  LaterSeconds BroadcastBuffersOfReplicas();
  void RunForward(int micro_batches);
  // Takes in the steps that the devices are past, or all.
  absl::Status TakeInSteps(bool wait);
  const std::vector<ExecutorStep>& Read(StepState& step) const;
  static bool Reached(const StepState& step);
  static double FirstStart(const StepState& step);
  void AddTimes(StepState& step, StepRecord& record);
  std::string DescribeDevices() const;
  void AnchorClocks();
  absl::Status Finish();
  std::vector<TraceSpan> TraceOf(const StepState& step) const;
  absl::StatusOr<std::vector<TraceProcess>> PredictedTrace();
  LaterSeconds AddUpTiedGradients();
  absl::StatusOr<EvalRecord> EvaluateTestSet(TrainingData& data, int64_t epoch);

  // The schedule of a step of so many micro-batches; fewer at an epoch's end.
  absl::StatusOr<const Schedule*> ScheduleFor(size_t micro_batches);
  int RankOf(size_t layer) const;  // of the pipeline
  bool in_one_process() const { return !worker_.devices.empty(); }
  int pipeline_size() const {
    return in_one_process() ? static_cast<int>(worker_.devices.size())
                            : worker_.shards;
  }
  // Of this rank of the pipeline, one of ranks_.
  torch::Device DeviceOf(int rank) const {
    return in_one_process() ? worker_.devices[static_cast<size_t>(rank)]
                            : worker_.device;
  }

  TrainConfig config_;
  Worker worker_;
  const PipelineConfig pipeline_;
  ModelSpec spec_;
  std::vector<LayerProfile> profile_;     // of the layers, where one was made
  std::vector<LayerRange> stage_layers_;  // of all stages
  std::vector<torch::ScalarType> output_types_;  // of all stages
  std::map<size_t, Schedule> schedules_;         // with communication
  std::vector<int> ranks_;  // of the pipeline, those that this process runs
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
  std::unique_ptr<PipelineExecutor> executor_;     // with a process per rank
  std::unique_ptr<LocalExecutor> local_executor_;  // in one process
  std::optional<PipelineMeter> meter_;
  std::vector<HostAnchor> anchors_;               // as ranks_
  double anchored_seconds_ = 0;                   // when, by the host's clock
  std::optional<Moment> last_update_;             // on worker_.device
  std::deque<std::shared_ptr<StepState>> steps_;  // not yet taken in
  int64_t full_steps_ = 0;                        // started
  double traced_start_seconds_ = 0;  // of the last full step that was traced
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_RUN_H_
