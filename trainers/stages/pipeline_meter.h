// The measured times of a pipeline's steps, next to the times that the
// simulator predicts from measured costs.
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

// Summary, Timelines, Predict, and Add with `exchange_costs` are collective
// over the ranks of the job. Not thread-safe.
class PipelineMeter {
 public:
  // `schedule`: of a full step, until Follow. `output_bytes`: of each stage's
  // output for a full micro-batch. Both, and the worker, must outlive the
  // meter. `ranks`: the pipeline's ranks in this process: one, or all in order.
  PipelineMeter(const Schedule& schedule, std::vector<double> output_bytes,
                LinkCosts link, const Worker& worker, std::vector<int> ranks);

  // Adds step `step`, which ran `schedule`, and returns the records of `ranks`
  // in it. With `exchange_costs`, which must be equal on all ranks, the ranks
  // exchange the costs of their actions and renew the prediction.
  absl::StatusOr<std::vector<ScheduleRecord>> Add(
      int64_t step, const Schedule& schedule,
      const std::vector<ExecutorStep>& measured, bool exchange_costs);

  // Returns whether to exchange costs after full step number `full_steps`, from
  // 1: after the third, and then after each that is twice the previous one.
  static bool IsDue(int64_t full_steps);

  // From now on full steps run `schedule`, which must outlive the meter.
  // Statistics of full steps restart; the prediction uses costs().
  absl::Status Follow(const Schedule& schedule);

  // Returns the last exchanged costs, identical on all ranks; without stages
  // before the first exchange.
  const SimulationCosts& costs() const { return costs_; }

  // Returns a table of the steps so far: each rank's stages and busy time, both
  // bubbles and the step time, measured and predicted. On every rank.
  absl::StatusOr<std::string> Summary();

  // Returns the times of the actions of this process's ranks in the last full
  // step, measured and (for the first replica only) predicted. Empty after too
  // few steps. Throws the exceptions of failed messages.
  absl::StatusOr<std::vector<TimelineRecord>> Timelines() const;

  // All ranks exchange the costs of their actions in the last full steps;
  // returns the timeline that these predict for the schedule, on all ranks.
  // Leaves records unchanged.
  absl::StatusOr<Timeline> Predict() const;

 private:
  struct FullStep {
    int64_t step = 0;
    std::vector<std::vector<Span>> spans;  // indexed as ranks_
  };
  using Table = std::vector<std::vector<double>>;  // a row per rank

  bool IsFull(const Schedule& schedule) const { return &schedule == schedule_; }
  // Returns whether all ranks of the pipeline are in this process.
  bool in_one_process() const { return ranks_.size() > 1; }
  // Returns the index of this rank's pipeline: one per line along pp.
  int Pipeline() const;
  // Returns the indices, in a gathered table, of the rows of the ranks of the
  // pipeline that `rank_of_job` is in.
  std::vector<int> RowsOf(int rank_of_job) const;
  ScheduleRecord RecordOf(int64_t step, const Schedule& schedule, int rank,
                          const ExecutorStep& measured) const;
  absl::StatusOr<Table> GatherAll(Table rows) const;
  // Returns the computation among `spans`, in seconds since `origin_seconds`.
  TimelineRecord Describe(const std::vector<Span>& spans, size_t index,
                          double origin_seconds, const char* origin) const;
  std::vector<double> SummaryOf(size_t index) const;
  // [stage][kind], NaN for actions elsewhere, followed by the link's two costs.
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
  std::deque<FullStep> recent_;  // the last full steps
  // Statistics of one of ranks_ for the summary.
  struct RankSums {
    // Per full step except the first: total, span, busy, waiting.
    std::array<std::vector<double>, 4> seconds;
    int peak_activations = 0;
    double sent_bytes = 0, transfer_seconds = 0;  // in the last full step
  };
  std::vector<RankSums> sums_;        // indexed as ranks_
  SimulationCosts costs_;             // of the last prediction
  Timeline prediction_;               // the last one
  std::optional<Bubbles> predicted_;  // its bubbles; nullopt before the first
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_METER_H_
