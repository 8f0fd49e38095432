// Training steps of a model cut into stages, and their measured times.
#ifndef RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_
#define RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/stages/mesh_trainer.h"
#include "trainers/stages/pipeline_meter.h"
#include "trainers/stages/pipeline_plan.h"
#include "trainers/stages/pipeline_stages.h"

namespace rankwise {

// A step: made by PipelineRun::Begin, run by TrainOnMesh.
struct PipelineStep {
  int64_t number = 0;
  const Schedule* schedule = nullptr;
  std::vector<ExecutorStep> ranks;  // returned by PipelineStages::Run
  bool full = false;                // has all of its micro-batches
  bool exchanges_costs = false;     // when its times are added to the meter
};

// On an accelerator a step's times are read after the device has passed it: at
// a later step, or when the host waits for the device: in the few steps in
// which ranks exchange costs (PipelineMeter::IsDue), in traced steps, and at
// the end. Not thread-safe. Every method is collective over all ranks.
class PipelineRun {
 public:
  // The arguments must outlive the run; `config` is that of `mesh`.
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Create(
      const TrainConfig& config, const Worker& worker, const MeshModel& mesh);

  // Trains to the end of the configuration with `step`, evaluates with the same
  // stages, and prints their utilisation at the end.
  absl::Status Train(const StepFunction& step);

  // Passes the step's micro-batches to the stages; the last stage computes each
  // micro-batch's share of the loss from its output.
  absl::StatusOr<std::shared_ptr<PipelineStep>> Begin(const StepInput& input);
  // Call after the update. `exposed`: exposed communication by axis.
  absl::StatusOr<StepOutcome> End(
      const StepInput& input, std::shared_ptr<PipelineStep> step,
      std::map<std::string, PendingDuration> exposed);

 private:
  PipelineRun(const TrainConfig& config, const Worker& worker,
              const MeshModel& mesh, const Schedule& full_schedule);
  absl::StatusOr<EvalRecord> Evaluate(TrainingData& data, int64_t epoch);
  absl::Status Conclude();

  // Plans once more from exchanged costs, if the schedule depends on them.
  absl::Status Replan(int64_t last_step);
  // Adds finished steps to the meter, or with `wait` all steps.
  absl::Status TakeInSteps(bool wait);
  const std::vector<ExecutorStep>& Read(PipelineStep& step) const;
  void AddTimes(PipelineStep& step, StepRecord& record) const;
  void AnchorClocks();
  std::vector<TraceSpan> TraceOf(const PipelineStep& step) const;
  std::vector<TraceSpan> CopiesOf(const PipelineStep& step) const;
  absl::StatusOr<TraceProcess> PredictionOf(const PipelineStep& step) const;

  const TrainConfig& config_;
  const Worker& worker_;
  PipelinePlan* const plan_;
  TrainingRun* const training_;
  FullyShardedDataParallel* const sharded_;  // nullptr without sharding
  PipelineStages* const stages_;
  PipelineMeter meter_;
  bool planned_again_ = false;
  int64_t full_steps_ = 0;  // number of full steps started
  std::deque<std::shared_ptr<PipelineStep>> steps_;  // not in the meter yet
  std::optional<DeviceEvent> last_update_;           // on worker_.device
  std::vector<HostAnchor> anchors_;                  // by local rank
  double anchored_seconds_ = 0;  // time of the anchors, by the host's clock
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_
