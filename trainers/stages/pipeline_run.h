// Training with a model cut into stages: one optimizer step over them, and what
// it took.
#ifndef RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_
#define RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/engine/executor_step.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/stages/pipeline_meter.h"
#include "trainers/stages/pipeline_plan.h"
#include "trainers/stages/pipeline_stages.h"

namespace rankwise {

// On an accelerator a step's times are read once the device is past it, when
// the host looks again: at the next step, or where it waits anyway. It waits
// for them in the few steps in which ranks exchange costs
// (PipelineMeter::IsDue), in those that are traced, and at the end. Not
// thread-safe. Every method is collective over all ranks.
class PipelineRun {
 public:
  // `config.accumulate` is replaced by the pipeline's micro-batches. `worker`
  // must outlive the run. InvalidArgument where ranks, stages, layers and
  // schedule do not fit.
  static absl::StatusOr<std::unique_ptr<PipelineRun>> Create(
      const TrainConfig& config, const Worker& worker,
      const PipelineConfig& pipeline);

  // Trains to the end of the configuration, then says how busy the stages were.
  absl::Status Train();

 private:
  // A step whose times have not all been taken in.
  struct StepState {
    int64_t number = 0;
    const Schedule* schedule = nullptr;
    bool full = false;                // all of its micro-batches
    bool exchanges_costs = false;     // when it is taken in
    std::vector<ExecutorStep> ranks;  // by rank here
  };

  PipelineRun(const TrainConfig& config, const Worker& worker,
              const PipelineConfig& pipeline);
  absl::Status Prepare(const PipelineConfig& pipeline);

  absl::StatusOr<StepOutcome> Step(const StepInput& input);
  absl::StatusOr<EvalRecord> Evaluate(TrainingData& data, int64_t epoch);
  absl::StatusOr<StepOutcome> Measure(const StepInput& input,
                                      std::shared_ptr<StepState> state,
                                      PendingDuration exposed);
  absl::Status Conclude();

  // Takes in the steps that the devices are past, or all.
  absl::Status TakeInSteps(bool wait);
  const std::vector<ExecutorStep>& Read(StepState& step) const;
  void AddTimes(StepState& step, StepRecord& record) const;
  void AnchorClocks();
  std::vector<TraceSpan> TraceOf(const StepState& step) const;
  std::vector<TraceSpan> CopiesOf(const StepState& step) const;
  absl::StatusOr<TraceProcess> PredictionOf(const StepState& step) const;

  TrainConfig config_;
  const Worker& worker_;
  std::unique_ptr<PipelinePlan> plan_;
  std::unique_ptr<TrainingRun> training_;
  std::unique_ptr<PipelineStages> stages_;
  std::optional<PipelineMeter> meter_;
  int64_t full_steps_ = 0;                        // started
  std::deque<std::shared_ptr<StepState>> steps_;  // not yet taken in
  std::optional<DeviceEvent> last_update_;        // on worker_.device
  std::vector<HostAnchor> anchors_;               // by rank here
  double anchored_seconds_ = 0;                   // when, by the host's clock
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_RUN_H_
