// What every trainer shares: the model, its data and optimizer, and around each
// step the epochs, records, progress, evaluation and checkpoints. The step
// itself is the trainer's.
#ifndef RANKWISE_TRAINERS_TRAINING_RUN_H_
#define RANKWISE_TRAINERS_TRAINING_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/trace/chrome_trace.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "samplers/datasets/dataset.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/config.h"
#include "trainers/console.h"
#include "trainers/learning_rate.h"
#include "trainers/models/model.h"
#include "trainers/objective.h"
#include "trainers/optimizer.h"
#include "trainers/resume.h"
#include "trainers/step.h"
#include "trainers/step_clock.h"
#include "trainers/step_log.h"
#include "trainers/step_trace.h"
#include "trainers/step_traffic.h"
#include "trainers/training_data.h"
#include "trainers/worker.h"

namespace rankwise {

// The part of the model that this rank holds; by default all of it.
struct ModelPlacement {
  std::vector<LayerRange> layers;      // empty: all
  std::vector<torch::Device> devices;  // one per layer; empty: the worker's
  // Has the model's first or last layer. Others count examples, but need not
  // see them.
  bool reads_data = true;
};

// Evaluates the model on the whole test set, all ranks together.
using EvaluateFunction =
    std::function<absl::StatusOr<EvalRecord>(TrainingData&, int64_t epoch)>;

// Not thread-safe. With several ranks every method is collective.
class TrainingRun {
 public:
  // Builds the model from the seed, opens the data, and restores the newest
  // checkpoint if the configuration asks for it. `config` and `worker` must
  // outlive the run.
  static absl::StatusOr<std::unique_ptr<TrainingRun>> Create(
      const TrainConfig& config, const Worker& worker,
      const ModelPlacement& placement = {});

  // Instead of a forward of the whole model on every rank.
  void EvaluateBy(EvaluateFunction evaluate) {
    evaluate_ = std::move(evaluate);
  }

  // After the last step, while records can still be written.
  void AtEnd(std::function<absl::Status()> at_end) {
    at_end_ = std::move(at_end);
  }

  void AddToTrace(MoreTraceFunction more) { more_trace_ = std::move(more); }

  Model& model() { return *model_; }
  const TrainingData& data() const { return data_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Objective& objective() const { return *objective_; }

  // Trains to the end of the configuration. An exception of `step` comes back
  // as a Status that says at which step, and with several ranks which
  // collective failed and which rank is missing.
  absl::Status Train(const StepFunction& step);

  // A line of the whole run, and one that every rank prints.
  void Say(const std::string& line) { console_->Say(line); }
  void SayRank(const std::string& line) { console_->SayRank(line); }
  // Appends to --record, if there is one.
  absl::Status Write(const Record& record);

 private:
  TrainingRun(const TrainConfig& config, const Worker& worker, ModelSpec spec);
  absl::Status BuildModel(const ModelPlacement& placement);
  absl::Status Plan();
  absl::Status RestoreIfAsked();
  absl::Status OpenOutputs();
  void Announce();

  absl::Status TrainEpoch(const StepFunction& step);
  absl::StatusOr<std::vector<Batch>> NextMicroBatches();
  absl::Status TrainStep(const StepFunction& step,
                         absl::Span<const Batch> micro_batches,
                         StepClock& clock);
  absl::Status AfterStep(int64_t step_in_epoch, int64_t examples);
  void TellSkippedSteps();
  double TrainingFlops()
      const;  // of one example, on one of this rank's devices
  absl::Status PrepareTrace();
  absl::Status WriteTrace();
  absl::Status CheckTraceFile() const;
  absl::Status FinishEpoch();
  absl::Status EvaluateEpoch();
  absl::Status Finish();
  absl::Status SaveCheckpoint();
  absl::Status ExportModel();
  bool done() const;

  template <typename Body>
  absl::Status Guarded(const std::string& attempted, Body body);

  const TrainConfig& config_;
  const Worker& worker_;
  const ModelSpec spec_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainingData data_;
  int64_t global_batch_ = 0;  // examples per step, of all ranks
  int64_t steps_per_epoch_ = 0;
  int64_t total_steps_ = 0;
  LearningRate learning_rate_;
  std::unique_ptr<RecordWriter> writer_;  // null without --record
  std::optional<CheckpointStore> checkpoints_;
  std::optional<Console> console_;
  std::optional<StepLog> log_;
  StepTraffic traffic_;
  std::unique_ptr<StepTrace> trace_;      // null without --trace
  MoreTraceFunction more_trace_;          // may be null
  EvaluateFunction evaluate_;             // null: Evaluate
  std::function<absl::Status()> at_end_;  // may be null
  Progress progress_;
  bool warned_non_finite_ = false;
  int64_t told_skipped_ = 0;  // steps that fp16's overflows cost
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_TRAINING_RUN_H_
