// Manual model parallelism in one process: the stages of one model on devices
// of their own.
#ifndef RANKWISE_TRAINERS_LOCAL_MODEL_PARALLEL_H_
#define RANKWISE_TRAINERS_LOCAL_MODEL_PARALLEL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/device/moment.h"
#include "parallel/model_parallel/sequential_stages.h"
#include "records/record.h"
#include "trainers/config.h"
#include "trainers/model_stage.h"
#include "trainers/models/model.h"
#include "trainers/models/profile.h"
#include "trainers/training_run.h"
#include "trainers/worker.h"

namespace rankwise {

// On accelerators a step's times are read once the devices are past it, at a
// later step or where the host waits anyway. Not thread-safe.
class LocalModelParallel {
 public:
  // One stage on each of worker.devices, cut as `split` says
  // (PipelineConfig::split). `config` and `worker` must outlive the run.
  static absl::StatusOr<std::unique_ptr<LocalModelParallel>> Create(
      const TrainConfig& config, const Worker& worker,
      const std::string& split);

  // Trains to the end of the configuration, then says how busy the stages were
  // and what crossed between them.
  absl::Status Train();

 private:
  LocalModelParallel(const TrainConfig& config, const Worker& worker);
  absl::Status CutIntoStages(const std::string& split);
  absl::Status CreateTraining();

  struct StepState {
    int64_t number = 0;
    size_t micro_batches = 0;
    SequentialStepInFlight in_flight;
    std::optional<SequentialStep> read;
  };

  absl::StatusOr<StepOutcome> Step(const StepInput& input);
  // Takes in the steps that the devices are past, or all.
  absl::Status TakeInSteps(bool wait);
  const SequentialStep& Read(StepState& step) const;
  void AnchorClocks();
  static void AddTimes(const SequentialStep& step, StepRecord& record);
  absl::Status Note(int64_t step, size_t micro_batches,
                    const SequentialStep& measured);
  TimelineRecord LastTimeline() const;
  std::vector<TraceSpan> TraceOf(const SequentialStep& step) const;
  absl::StatusOr<EvalRecord> EvaluateTestSet(TrainingData& data, int64_t epoch);
  std::string Summary() const;

  struct Measures {
    double seconds = 0;
    std::vector<double> busy_seconds;         // per stage
    std::vector<BoundaryTraffic> boundaries;  // stages - 1
  };

  const TrainConfig& config_;
  const Worker& worker_;
  const std::vector<torch::Device> devices_;
  ModelSpec spec_;
  std::vector<LayerProfile> profile_;  // of the layers, where one was made
  std::vector<LayerRange> stage_layers_;
  std::vector<torch::ScalarType> output_types_;  // by stage
  std::unique_ptr<TrainingRun> training_;
  std::vector<std::unique_ptr<ModelStage>> stages_;
  std::optional<SequentialStages> sequence_;
  std::vector<HostAnchor> anchors_;  // by stage
  double anchored_seconds_ = 0;      // when, by the host's clock
  std::deque<std::shared_ptr<StepState>> in_flight_;  // not yet taken in
  std::vector<Measures> steps_;  // but the first, which warms up
  bool warmed_up_ = false;
  Timeline last_full_;          // of the last step with all micro-batches
  int64_t last_full_step_ = 0;  // 0: none yet
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOCAL_MODEL_PARALLEL_H_
