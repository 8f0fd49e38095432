// Replays the communication of some of a trainer's steps, without its
// computation.
#ifndef RANKWISE_COMM_BENCH_MODES_REPLAY_H_
#define RANKWISE_COMM_BENCH_MODES_REPLAY_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/sweep/recorded_traffic.h"
#include "comm_bench/timing/series.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// Process groups by the job ranks in them, in order; the group of all ranks has
// an empty key.
using ReplayGroups =
    std::map<std::vector<int64_t>, c10::intrusive_ptr<c10d::ProcessGroup>>;

// Not thread-safe. Buffers are allocated once, zero-filled.
class StepReplay {
 public:
  // `record` must have passed CheckTraffic; `groups` must contain all of its
  // groups.
  StepReplay(const TrafficRecord& record, double lead_in_seconds,
             const ReplayGroups& groups, c10::Device device);

  // Repeats the step; called by all ranks together. Returns its duration in
  // seconds without gaps. Sleeps through the gaps, or omits them if `keep_gaps`
  // is false. Throws the exceptions of failed calls.
  double Run(bool keep_gaps);

 private:
  // One recorded event, prepared for repeated starts: a collective of the
  // table, a message, or a mark.
  struct Event {
    std::string op;
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    const Collective* collective = nullptr;
    Call call;
    Buffers buffers;
    int peer = -1;  // of a message; rank in the group
    int tag = 0;    // number of the message in this direction within the step
    Works works;    // empty before the start and after the end
  };

  Event Prepare(const RecordedTransfer& recorded, const ReplayGroups& groups);
  void Start(Event& event);
  void AwaitEnd(Event& event);

  const c10::Device device_;
  std::vector<ReplayAction> plan_;
  std::vector<Event> events_;
};

// Seconds per step of each rank, and of each step's slowest rank.
struct ReplayTimes {
  std::vector<Estimate> ranks;
  Estimate slowest;
};

// Equal on every rank, except for the samples.
struct ReplayResult {
  std::string trainer;         // "ddp"
  std::vector<int64_t> steps;  // recorded steps
  std::vector<int64_t> calls;  // of each rank in the first step
  std::vector<int64_t> bytes;  // likewise; of the ranks' own buffers
  int64_t iterations = 0;      // of each way
  ReplayTimes step;            // the trainer's whole step
  ReplayTimes exposed;         // the trainer's exposed communication
  ReplayTimes gaps;            // see Replay
  ReplayTimes back_to_back;    // see Replay
  // This rank's iterations, from which gaps and back_to_back are computed;
  // start times are on its own clock, since the end of the warm-up. The layers
  // are "gaps" and "back_to_back".
  CollectiveRecord own_gaps, own_back_to_back;
  bool stopped = false;  // stopped by `stop`
};

// Repeats the recorded steps in two ways, in turn:
//   gaps          each rank's thread sleeps for as long as it computed between
//                 its calls. The step's time without these gaps is the exposed
//                 communication if nothing competes with it for cores, memory
//                 and links.
//   back_to_back  without gaps: the duration of the communication alone.
// A trainer's exposed communication in excess of `gaps` is the cost of
// concurrent computation, which shares cores, memory and links. Both include
// waiting for ranks that compute longer.
//
// An event without an observed wait (all but Gloo's messages) counts as hidden
// until the step's end, or until a later event has to wait for it. Ranks start
// with their recorded offsets, as far as these are known (LeadInSeconds).
//
// Collective over all ranks of `comm`, which are those of `control` and of
// `traffic`; runs `iterations` of each way, cycling through the recorded steps.
// Creates the groups used by the trainer. `stop`, set on any rank, ends it
// early with the results so far; Cancelled before the first iteration. Throws
// the exceptions of failed calls.
absl::StatusOr<ReplayResult> Replay(Communicator& comm, Control& control,
                                    const RecordedTraffic& traffic,
                                    int64_t iterations,
                                    const std::atomic<bool>* stop = nullptr);

// Returns a table in milliseconds: medians, and below them the reach of their
// 95 % intervals.
std::string FormatReplay(const ReplayResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_REPLAY_H_
