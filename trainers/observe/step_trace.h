// What a few steps communicated and did: as records (--traffic_steps), and all
// ranks' in one trace (--trace).
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

// What was seen of one step.
struct StepCommunication {
  std::vector<CommEvent> events;        // none of a step that nobody watches
  std::optional<TrafficRecord> record;  // of a step that is recorded
};

// From the third step of this process on: the first two warm up. Begin and End
// in turn, around each step's communication.
class StepTraffic {
 public:
  static constexpr int64_t kWarmUpSteps = 2;

  // `comm` outlives it; may be null. `recorded` steps become records, `traced`
  // ones only events.
  StepTraffic(Communicator* comm, int64_t recorded, int64_t traced)
      : comm_(comm), recorded_(recorded), traced_(traced) {}

  // Whether this step is one of those.
  bool Begin();
  // What was communicated since Begin, or until comm's StopTraffic. The step
  // began at `start_ns` of the steady clock, from which the events' times
  // count; `step` has its number. Leaves the record's step_seconds and
  // exposed_comm_seconds to the caller.
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

// Follows config.steps steps after the first StepTraffic::kWarmUpSteps of this
// process. On an accelerator the host waits for the device at the end of each
// of them, so that both can be drawn in the same time.
class StepTrace {
 public:
  // InvalidArgument where the run's `steps` are too few for a trace.
  static absl::Status Check(const TraceConfig& config, int64_t steps);

  // Collective: brings the ranks' clocks together. The worker must outlive it.
  // Throws what a failed message throws, as Write does.
  StepTrace(const TraceConfig& config, const Worker& worker);

  // Before a step; whether it is one of those.
  bool Begin();
  // After it: adds its phases, its communication and the traces of `outcome`,
  // which are moved from. Of several predictions the last is shown.
  void End(int64_t step, const StepClock& clock,
           absl::Span<const CommEvent> communication, StepOutcome& outcome);

  // The last of them is over, and Write has not been called.
  bool due() const { return seen_ >= last_ && !written_; }
  bool written() const { return written_; }

  // The first rank writes the file, all ranks' steps and then the prediction.
  // Returns a line that says so, or warns that it could not be written; an
  // error is one of the ranks' exchange. Collective.
  absl::StatusOr<std::string> Write();
  // Why this rank could not write the file.
  const absl::Status& file_status() const { return file_status_; }

 private:
  // A step by the host's clock, with the device's work that it waited for.
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
  const int64_t last_;  // of the steps seen
  int64_t seen_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;  // by number; 0 before the first
  bool written_ = false;
  absl::Status file_status_;
  std::vector<Window> windows_;   // of the steps followed
  std::vector<TraceSpan> spans_;  // on this rank's clock
  std::optional<TraceProcess> predicted_;
  std::optional<OperatorRecording> operators_;  // while it records
  bool wants_operators_;                        // and has not failed to
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_STEP_TRACE_H_
