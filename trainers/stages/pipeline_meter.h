// What a pipeline's steps took, next to what the simulator predicts from the
// costs that were measured.
#ifndef RANKWISE_TRAINERS_STAGES_PIPELINE_METER_H_
#define RANKWISE_TRAINERS_STAGES_PIPELINE_METER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "records/record.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Collective in the same steps on every rank of the job. Not thread-safe.
class PipelineMeter {
 public:
  // `schedule`: of a full step, until Follow. `output_bytes`: of each stage's
  // output for a full micro-batch. Both, and the worker, outlive the meter.
  // `ranks`: of the pipeline, those that this process runs: its own, or all in
  // order.
  PipelineMeter(const Schedule& schedule, std::vector<double> output_bytes,
                LinkCosts link, const Worker& worker, std::vector<int> ranks);

  // Takes in step `step`, which ran `schedule`; the records say what each of
  // `ranks` did in it. With `exchange_costs`, the same on all ranks, they
  // exchange what their actions cost, and the prediction is made anew.
  absl::StatusOr<std::vector<ScheduleRecord>> Add(
      int64_t step, const Schedule& schedule,
      const std::vector<ExecutorStep>& measured, bool exchange_costs);

  // Whether costs should be exchanged after the full step number `full_steps`,
  // from 1: the third, and then each that is twice the last one.
  static bool IsDue(int64_t full_steps);

  // Full steps run `schedule`, which outlives the meter, from now on. What is
  // said of full steps counts from here; it is predicted from costs().
  absl::Status Follow(const Schedule& schedule);

  // What ranks exchanged last, the same on all of them; without stages before
  // they did.
  const SimulationCosts& costs() const { return costs_; }

  // The steps so far as a table: each rank's stages and how busy it was, both
  // bubbles and the step's time, measured and predicted. On every rank.
  absl::StatusOr<std::string> Summary();

  // When the actions of this process's ranks ran in the last full step, and
  // when they should have by the prediction (of the first replica only). Empty
  // after too few steps. Throws what a failed message throws.
  absl::StatusOr<std::vector<TimelineRecord>> Timelines() const;

  // All ranks exchange what their actions cost in the last full steps; what the
  // schedule should take by these, on all ranks. Records stay as they are.
  absl::StatusOr<Timeline> Predict() const;

 private:
  struct FullStep {
    int64_t step = 0;
    std::vector<std::vector<Span>> spans;  // as ranks_
  };
  using Table = std::vector<std::vector<double>>;  // a row per rank

  bool IsFull(const Schedule& schedule) const { return &schedule == schedule_; }
  // All ranks of the pipeline are in this process.
  bool in_one_process() const { return ranks_.size() > 1; }
  // Which of the job's pipelines this rank is in: one per line along pp.
  int Pipeline() const;
  // In this process, or in the job, those of one pipeline by place.
  std::vector<int> RowsOf(int rank_of_job) const;
  ScheduleRecord RecordOf(int64_t step, const Schedule& schedule, int rank,
                          const ExecutorStep& measured) const;
  absl::StatusOr<Table> GatherAll(Table rows) const;
  // The computation among `spans`, in order of start, since `origin_seconds`.
  TimelineRecord Describe(const std::vector<Span>& spans, size_t index,
                          double origin_seconds, const char* origin) const;
  std::vector<double> SummaryOf(size_t index) const;
  // [stage][kind], NaN if not here, and the link's two.
  std::vector<double> MedianCosts() const;
  absl::StatusOr<SimulationCosts> ExchangeCosts() const;
  absl::Status PredictAnew();
  std::string RankTable(const Table& ranks) const;
  std::string BubbleLines(const Table& ranks) const;

  const Schedule* schedule_;
  const std::vector<double> output_bytes_;
  const LinkCosts link_;
  const Worker& worker_;
  const std::vector<int> ranks_;
  bool warmed_up_ = false;       // a full step has been added
  std::deque<FullStep> recent_;  // the last ones
  // What the summary tells of each of ranks_.
  struct RankSums {
    // Of each full step but the first: all of it, span, busy, waiting.
    std::array<std::vector<double>, 4> seconds;
    int peak_activations = 0;
    double sent_bytes = 0, transfer_seconds = 0;  // in the last full step
  };
  std::vector<RankSums> sums_;        // as ranks_
  SimulationCosts costs_;             // of the last prediction
  Timeline prediction_;               // the last one,
  std::optional<Bubbles> predicted_;  // and its bubbles; none before the first
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_METER_H_
