// A few steps of all ranks as one picture: --trace.
#ifndef RANKWISE_TRAINERS_STEP_TRACE_H_
#define RANKWISE_TRAINERS_STEP_TRACE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/comm/job_clock.h"
#include "parallel/comm/traffic.h"
#include "parallel/trace/chrome_trace.h"
#include "parallel/trace/operators.h"
#include "trainers/config.h"
#include "trainers/step_clock.h"
#include "trainers/worker.h"

namespace rankwise {

// The lanes of a rank.
inline constexpr char kComputeLane[] = "compute";
inline constexpr char kCommunicationLane[] = "communication";
inline constexpr char kDataLane[] = "data";

// What a trace shows beside the ranks. Times are of the first rank's steady
// clock. Called by all ranks.
using MoreTraceFunction =
    std::function<absl::StatusOr<std::vector<TraceProcess>>()>;

// Follows the steps after the first StepTraffic::kWarmUpSteps of this process,
// as many as asked for. On an accelerator the host waits for the device at the
// end of each of them, so that both can be drawn in the same time.
class StepTrace {
 public:
  // Collective: brings the ranks' clocks together. Null where no trace is asked
  // for; InvalidArgument where the run's `steps` are too few. The worker must
  // outlive it. Throws what a failed message throws, as Write does.
  static absl::StatusOr<std::unique_ptr<StepTrace>> Create(
      const TraceConfig& config, const Worker& worker, int64_t steps);

  // Before a step; whether it is one of those.
  bool Begin();
  // After it: its phases, what was communicated, and bars of the trainer's own.
  void End(int64_t step, const StepClock& clock,
           absl::Span<const CommEvent> communication,
           std::vector<TraceSpan> own);

  bool complete() const { return seen_ >= last_; }  // the last one is done
  bool written() const { return written_; }

  // The first rank writes the file, of all ranks' steps and, after them, what
  // `more` adds, if it is not null. A line that says so. Collective.
  absl::StatusOr<std::string> Write(const MoreTraceFunction& more);

 private:
  StepTrace(const TraceConfig& config, const Worker& worker);
  bool Follows(int64_t seen) const;
  void AddPhases(int64_t step, const StepClock& clock);
  void StopOperators();
  TraceProcess TakeProcess();  // on the job's clock

  const TraceConfig config_;
  const Worker& worker_;
  const JobClock clock_;
  const int64_t last_;  // of the steps seen
  int64_t seen_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;  // by number; 0 before the first
  bool written_ = false;
  std::vector<TraceSpan> spans_;                // on this rank's clock
  std::optional<OperatorRecording> operators_;  // while it records
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_TRACE_H_
