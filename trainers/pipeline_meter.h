// What a pipeline's steps took, beside what the simulator says that they should
// take with the costs that were measured.
#ifndef RANKWISE_TRAINERS_PIPELINE_METER_H_
#define RANKWISE_TRAINERS_PIPELINE_METER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"
#include "records/record.h"
#include "trainers/worker.h"

namespace rankwise {

// Collective in the same steps on every rank of the job. Not thread-safe.
class PipelineMeter {
 public:
  // `schedule`: of a full step. `output_bytes`: of each stage's output for a
  // full micro-batch. Both, and the worker, outlive the meter.
  PipelineMeter(const Schedule& schedule, std::vector<double> output_bytes,
                LinkCosts link, const Worker& worker);

  // Takes in step `step`, which ran `schedule`; the record says what this rank
  // did in it. Every so often all ranks exchange what their actions cost, and
  // the prediction is made anew.
  absl::StatusOr<ScheduleRecord> Add(int64_t step, const Schedule& schedule,
                                     const ExecutorStep& measured);

  // The steps so far as a table: each rank's stages and how busy it was, both
  // bubbles and the step's time, measured and predicted. On every rank.
  absl::StatusOr<std::string> Summary();

  // When this rank's actions ran in the last full step, and when they should
  // have by the prediction (of the first replica only). Empty after too few
  // steps. Throws what a failed message throws.
  absl::StatusOr<std::vector<TimelineRecord>> Timelines() const;

  // All ranks exchange what their actions cost in the last full steps; what the
  // schedule should take by these, on all ranks. Records stay as they are.
  absl::StatusOr<Timeline> Predict() const;

 private:
  struct StepShare {
    double seconds = 0, span_seconds = 0, busy_seconds = 0, wait_seconds = 0;
  };
  struct FullStep {
    int64_t step = 0;
    std::vector<Span> spans;
  };
  bool IsFull(const Schedule& schedule) const {
    return &schedule == &schedule_;
  }
  TimelineRecord Describe(const std::vector<Span>& spans, double origin_seconds,
                          const char* origin) const;
  std::vector<double> MedianCosts() const;  // [stage][kind], NaN if not here
  absl::Status PredictAnew();
  void FillPrediction(ScheduleRecord& record) const;
  std::string RankTable(const std::vector<std::vector<double>>& ranks) const;
  std::string BubbleLines(const std::vector<std::vector<double>>& ranks) const;

  const Schedule& schedule_;
  const std::vector<double> output_bytes_;
  const LinkCosts link_;
  const Worker& worker_;
  int64_t full_steps_ = 0;
  int64_t next_prediction_;
  std::deque<FullStep> recent_;    // the last ones
  std::vector<StepShare> shares_;  // of all full steps but the first
  int peak_activations_ = 0;
  double sent_bytes_ = 0, transfer_seconds_ = 0;  // in the last full step
  bool predicted_ = false;
  Timeline prediction_;
  Bubbles predicted_bubbles_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_METER_H_
