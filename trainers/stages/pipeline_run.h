// Around the steps of a model that is cut into stages: what they run, and what
// they took.
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
  std::vector<ExecutorStep> ranks;  // what PipelineStages::Run returned
  bool full = false;                // has all of its micro-batches
  bool exchanges_costs = false;     // when its times are taken in
};

// On an accelerator a step's times are read once the device is past it: at a
// later step, or where the host waits for the device: in the few steps in which
// ranks exchange costs (PipelineMeter::IsDue), in those that are traced, and at
// the end. Not thread-safe. Every method is collective over all ranks.
class PipelineRun {
 public:
  // The arguments must outlive the run; `config` is that of `mesh`.
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Create(
      const TrainConfig& config, const Worker& worker, const MeshModel& mesh);

  // Trains to the end of the configuration with `step`, evaluates with the same
  // stages, and says in the end how busy they were.
  absl::Status Train(const StepFunction& step);

  // Gives the stages the step's micro-batches; the last one makes of each
  // micro-batch's output its share of the loss.
  absl::StatusOr<std::shared_ptr<PipelineStep>> Begin(const StepInput& input);
  // After the update. `exposed`: how long it had to wait for communication, by
  // axis.
  absl::StatusOr<StepOutcome> End(
      const StepInput& input, std::shared_ptr<PipelineStep> step,
      std::map<std::string, PendingDuration> exposed);

 private:
  PipelineRun(const TrainConfig& config, const Worker& worker,
              const MeshModel& mesh, const Schedule& full_schedule);
  absl::StatusOr<EvalRecord> Evaluate(TrainingData& data, int64_t epoch);
  absl::Status Conclude();

  // Once, after ranks have exchanged costs, where the schedule depends on them.
  absl::Status PlanAgain(int64_t last_step);
  // Takes in the steps that the devices are past, or all.
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
  FullyShardedDataParallel* const sharded_;  // null: not divided
  PipelineStages* const stages_;
  PipelineMeter meter_;
  bool planned_again_ = false;
  int64_t full_steps_ = 0;                           // started
  std::deque<std::shared_ptr<PipelineStep>> steps_;  // not yet taken in
  std::optional<DeviceEvent> last_update_;           // on worker_.device
  std::vector<HostAnchor> anchors_;                  // by rank here
  double anchored_seconds_ = 0;  // when, by the host's clock
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_
