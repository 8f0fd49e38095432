// The parts that all trainers share: the model, its data and optimizer, and
// around each step the epochs, records, progress, evaluation and checkpoints.
// The trainer provides the step and parallelizes the model.
#ifndef RANKWISE_TRAINERS_LOOP_TRAINING_RUN_H_
#define RANKWISE_TRAINERS_LOOP_TRAINING_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/exposed_comm.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "samplers/datasets/dataset.h"
#include "trainers/loop/config.h"
#include "trainers/loop/divergence.h"
#include "trainers/loop/model_placement.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_data.h"
#include "trainers/loop/worker.h"
#include "trainers/memory/measured_memory.h"
#include "trainers/models/model.h"
#include "trainers/observe/console.h"
#include "trainers/observe/step_log.h"
#include "trainers/observe/step_trace.h"
#include "trainers/resume/run_checkpoints.h"
#include "trainers/resume/save_points.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// Evaluates the model on the whole test set, all ranks together.
using EvaluateFunction =
    std::function<absl::StatusOr<EvalRecord>(TrainingData&, int64_t epoch)>;

// Order of calls: Create builds the model and opens the data; the trainer
// parallelizes the model (wraps it, replaces layers, makes stages); Start makes
// the optimizer and restores; Train trains. Not thread-safe. With several ranks
// every method is collective.
class TrainingRun {
 public:
  // Builds the model from the seed and opens the data. `config` and `worker`
  // must outlive the run.
  static absl::StatusOr<std::unique_ptr<TrainingRun>> Create(
      const TrainConfig& config, const Worker& worker,
      const ModelPlacement& placement = {});

  // Makes the optimizer over `owned`, the parameters that this rank updates,
  // restores the newest checkpoint under --resume, or else loads the weights of
  // --init_from, and opens --record. A run refused so far leaves no record. For
  // parameters in `sharded`, `owned` has the rows; these are restored and
  // saved.
  absl::Status Start(const NamedTensors& owned, ShardedState sharded = {});

  // Completed progress; after Start, that of the restored checkpoint, if any.
  // ContinueFrom sets it before Train, for ranks without checkpoints of their
  // own.
  const Progress& progress() const { return progress_; }
  void ContinueFrom(const Progress& progress) { progress_ = progress; }

  Model& model() { return *model_; }
  const TrainingData& data() const { return data_; }
  Optimizer& optimizer() { return *optimizer_; }  // after Start
  const Objective& objective() const { return *objective_; }

  // Trains to the end of the configuration and closes the records. Returns
  // ExplainTrainingFailure's Status, with the step, for an exception of `step`;
  // Cancelled if a scheduler's signal ended the run, after a save. `evaluate`
  // replaces the forward of the whole model on every rank; `conclude` is called
  // after the last epoch, before the records are closed. Both may be nullptr.
  absl::Status Train(const StepFunction& step,
                     const EvaluateFunction& evaluate = nullptr,
                     const std::function<absl::Status()>& conclude = nullptr);

  // Under --memory, `unsharded` returns the bytes that the sharding engine has
  // gathered; call before Start.
  void MeasureUnsharded(std::function<UnshardedBytes()> unsharded) {
    unsharded_ = std::move(unsharded);
  }
  // Adds the engine's state to checkpoints; call before Start.
  void SetEngineState(EngineState engine) { engine_ = std::move(engine); }
  // After Start; nullptr without --memory.
  MemoryMeter* memory_meter() { return memory_meter_.get(); }

  // Print a line for the whole run, or a line per rank.
  void Say(const std::string& line) { console_->Say(line); }
  void SayRank(const std::string& line) { console_->SayRank(line); }
  // Appends to --record, if it is set. After Start.
  absl::Status Write(const Record& record);

 private:
  TrainingRun(const TrainConfig& config, const Worker& worker, ModelSpec spec);
  // Runs `body` and converts its exceptions by ExplainTrainingFailure.
  absl::Status RunAndExplain(const std::string& attempted,
                             const std::function<absl::Status()>& body);
  void BuildModel(const ModelPlacement& placement);
  absl::Status Plan();
  absl::Status OpenCheckpoints(ShardedState sharded);
  absl::Status OpenOutputs();
  void Announce();

  absl::Status TrainEpoch(const StepFunction& step);
  absl::Status TrainStep(const StepFunction& step,
                         absl::Span<const Batch> micro_batches,
                         StepClock& clock);
  bool EndsEpoch(int64_t step, absl::Span<const Batch> micro_batches) const;
  absl::Status AfterStep(int64_t step_in_epoch);
  void ReportSkippedSteps();
  absl::Status CheckFinite();
  absl::Status Diverged(const std::string& what);
  absl::Status WriteDivergence(const std::string& cause);
  absl::Status WriteTrace();
  MemoryRecord MeasureMemory();
  absl::Status FinishEpoch(const EvaluateFunction& evaluate);
  absl::Status EvaluateEpoch(const EvaluateFunction& evaluate);
  absl::Status SaveCheckpoint();
  absl::StatusOr<bool> MaySave();
  absl::Status FinishCheckpoints();
  absl::Status ReportRestart();
  absl::Status EndPreempted();
  bool done() const { return progress_.step >= total_steps_; }
  bool epoch_done() const;

  const TrainConfig& config_;
  const Worker& worker_;
  const ModelSpec spec_;
  ExposedComm tensor_exposed_, context_exposed_;  // of the current step
  std::shared_ptr<Model> model_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Optimizer> optimizer_;
  TrainingData data_;
  int64_t global_batch_ = 0;  // examples per step, of all ranks
  int64_t total_steps_ = 0;
  LearningRate learning_rate_;
  std::unique_ptr<RecordWriter> writer_;  // nullptr without --record
  EngineState engine_;
  std::optional<RunCheckpoints> checkpoints_;  // nullopt without a folder
  std::optional<SavePoints> save_points_;      // with checkpoints_
  int64_t restart_ = 0;     // as AgreeOnRestart(); 0 for the first start
  bool preempted_ = false;  // ends after the save
  std::optional<Console> console_;
  std::optional<StepLog> log_;
  double step_bytes_ = 0;  // StepBytes; after Start
  int replicas_ = 1;       // as in ModelPlacement
  MemoryParts computed_memory_;
  std::function<UnshardedBytes()> unsharded_;  // may be nullptr
  std::unique_ptr<MemoryMeter> memory_meter_;  // nullptr without --memory
  StepTraffic traffic_;
  std::unique_ptr<StepTrace> trace_;  // nullptr without --trace
  Progress progress_;
  int64_t step_examples_ = 0;  // of all ranks, in the last step
  // Step of the last checkpoint written or resumed from, 0 if none. It is not
  // rewritten: a crash between its files would leave neither version.
  int64_t saved_step_ = 0;
  std::optional<DivergenceCheck> divergence_;  // after Start
  bool warned_non_finite_ = false;             // about a loss or gradient norm
  int64_t reported_skipped_ = 0;  // reported steps lost to fp16 overflows
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_TRAINING_RUN_H_
