// A few steps of all ranks as one picture: --trace.
#ifndef RANKWISE_TRAINERS_STEP_TRACE_H_
#define RANKWISE_TRAINERS_STEP_TRACE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
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

// Follows the steps after the first StepTraffic::kWarmUpSteps of this process,
// as many as asked for. On an accelerator the host waits for the device at the
// end of each of them, so that both can be drawn in the same time.
class StepTrace {
 public:
  // Collective: brings the ranks' clocks together.
  StepTrace(const TraceConfig& config, const Worker& worker);

  // Before a step; whether it is one of those.
  bool Begin();
  // After it: its phases, what was communicated, and bars of the trainer's own.
  void End(int64_t step, const StepClock& clock,
           absl::Span<const CommEvent> communication,
           std::vector<TraceSpan> own);

  // The last step is done, and Write was not called yet.
  bool complete() const { return seen_ >= last_ && !written_; }
  // Some step was followed.
  bool started() const { return first_step_ > 0; }
  int64_t first_step() const { return first_step_; }
  int64_t last_step() const { return last_step_; }

  // The first rank writes the file, of all ranks' steps and, after them, the
  // processes in `more`, whose times are those of its steady clock. Collective.
  absl::Status Write(std::vector<TraceProcess> more);

 private:
  bool Follows(int64_t seen) const;
  void AddPhases(int64_t step, const StepClock& clock);
  void StopOperators();

  const TraceConfig config_;
  const Worker& worker_;
  const JobClock clock_;
  const int64_t last_;  // of the steps seen
  int64_t seen_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;  // by number; 0: none
  bool written_ = false;
  std::vector<TraceSpan> spans_;  // on this rank's clock
  std::optional<OperatorRecording> operators_;  // while it records
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STEP_TRACE_H_
