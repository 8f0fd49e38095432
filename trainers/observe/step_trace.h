// Communication and activity of a few steps: as records (--traffic_steps), and
// as one trace of all ranks (--trace).
#ifndef RANKWISE_TRAINERS_OBSERVE_STEP_TRACE_H_
#define RANKWISE_TRAINERS_OBSERVE_STEP_TRACE_H_

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "parallel/clock/clock_sync.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/trace/chrome_trace.h"
#include "parallel/trace/operators.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/observe/step_log.h"

namespace rankwise {

// Communication observed in one step.
struct StepCommunication {
  std::vector<CommEvent> events;        // empty for a step that is not observed
  std::optional<TrafficRecord> record;  // set for a step that is recorded
};

// Observes steps from the third step of this process on; the first two warm up.
// Call Begin and End in turn, around each step's communication.
class StepTraffic {
 public:
  static constexpr int64_t kWarmUpSteps = 2;

  // `comm` must outlive it; may be nullptr. The first `recorded` observed steps
  // become records, later ones up to `traced` only events.
  StepTraffic(Communicator* comm, int64_t recorded, int64_t traced)
      : comm_(comm), recorded_(recorded), traced_(traced) {}

  // Returns whether this step is observed.
  bool Begin();
  // Returns the communication since Begin, or until comm's StopTraffic. `step`
  // has the step's number; `start_ns` is its begin on the steady clock, the
  // events' origin. The caller sets step_seconds and exposed_comm_seconds.
  StepCommunication End(const StepRecord& step, int64_t start_ns);

 private:
  Communicator* const comm_;
  const int64_t recorded_, traced_;
  int64_t seen_ = 0;
  bool watching_ = false;
};

// The lanes of a rank.
inline constexpr char kComputeLane[] = "compute";
inline constexpr char kCommunicationLane[] = "communication";
inline constexpr char kDataLane[] = "data";

// Traces config.steps steps after the first StepTraffic::kWarmUpSteps of this
// process. On an accelerator the host waits for the device at the end of each
// of them, so that both can be drawn on the same time axis.
class StepTrace {
 public:
  // InvalidArgument if the run has too few `steps` for a trace.
  static absl::Status Check(const TraceConfig& config, int64_t steps);

  // Collective: synchronises the ranks' clocks. The worker must outlive it.
  // Throws the exceptions of failed messages, as does Write.
  StepTrace(const TraceConfig& config, const Worker& worker);

  // Call before each step; returns whether the step is traced.
  bool Begin();
  // Call after each step: adds its phases, its communication and the traces of
  // `outcome`, which are moved from. Only the last prediction is shown.
  void End(int64_t step, const StepClock& clock,
           absl::Span<const CommEvent> communication, StepOutcome& outcome);

  // Returns whether all traced steps are over but not written yet.
  bool due() const { return seen_ >= last_ && !written_; }
  bool written() const { return written_; }

  // The first rank writes the file: all ranks' steps, then the prediction.
  // Returns a line that names the file, or a warning that it could not be
  // written; an error only if the ranks' exchange failed. Collective.
  absl::StatusOr<std::string> Write();
  // The reason why this rank could not write the file.
  const absl::Status& file_status() const { return file_status_; }

 private:
  // A step on the host's clock, including the device's work that it waited for.
  struct Window {
    double start_seconds = 0, end_seconds = 0;
  };
  bool Follows(int64_t seen) const;
  void AddPhases(int64_t step, const StepClock& clock);
  void StartOperators();
  void StopOperators();
  bool Followed(const TraceSpan& span) const;
  void GiveUpOperators(const std::exception& error);
  TraceProcess TakeProcess();  // on the job's clock

  const TraceConfig config_;
  const Worker& worker_;
  const ClockSync clock_;
  const int64_t last_;  // number of the last traced step of this process
  int64_t seen_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;  // step numbers; 0 before the first
  bool written_ = false;
  absl::Status file_status_;
  std::vector<Window> windows_;   // of the traced steps
  std::vector<TraceSpan> spans_;  // on this rank's clock
  std::optional<TraceProcess> predicted_;
  std::optional<OperatorRecording> operators_;  // while recording
  bool wants_operators_;                        // requested, and has not failed
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_TRACE_H_
