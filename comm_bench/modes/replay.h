// Trainer-shaped traffic: what a trainer communicated in some of its steps,
// repeated without its computation.
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

// By the ranks of the job in them, in their order; that of all ranks is found
// under no ranks.
using ReplayGroups =
    std::map<std::vector<int64_t>, c10::intrusive_ptr<c10d::ProcessGroup>>;

// Not thread-safe. Buffers are made once, zero-filled.
class StepReplay {
 public:
  // `record` has passed CheckTraffic; `groups` has all of its groups.
  StepReplay(const TrafficRecord& record, double lead_in_seconds,
             const ReplayGroups& groups, c10::Device device);

  // Repeats the step; all ranks call it together. Returns the seconds that it
  // took without its gaps, which are slept through, or left out where
  // `keep_gaps` is false. Throws what a failed call throws.
  double Run(bool keep_gaps);

 private:
  // One recorded event, ready to be started again and again: a collective of
  // the table, a message, or a mark.
  struct Event {
    std::string op;
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    const Collective* collective = nullptr;
    Call call;
    Buffers buffers;
    int peer = -1;  // of a message, in the group
    int tag = 0;    // the message's number from here to there in the step
    Works works;    // empty before the start and after the end
  };

  Event Prepare(const RecordedTransfer& recorded, const ReplayGroups& groups);
  void Start(Event& event);
  void AwaitEnd(Event& event);

  const c10::Device device_;
  std::vector<ReplayAction> plan_;
  std::vector<Event> events_;
};

// Seconds per step of each rank, and of the slowest rank of each step.
struct ReplayTimes {
  std::vector<Estimate> ranks;
  Estimate slowest;
};

// The same on every rank, but for the samples.
struct ReplayResult {
  std::string trainer;         // "ddp"
  std::vector<int64_t> steps;  // that were recorded
  std::vector<int64_t> calls;  // of each rank in the first of them
  std::vector<int64_t> bytes;  // likewise, of the ranks' own buffers
  int64_t iterations = 0;      // that were made, each way
  ReplayTimes step;            // the trainer's whole steps
  ReplayTimes exposed;         // the trainer's own exposed communication
  ReplayTimes gaps;            // see Replay
  ReplayTimes back_to_back;    // see Replay
  // This rank's iterations, from which gaps and back_to_back are computed; they
  // start at seconds of its own clock since the warm-up ended. The layers are
  // "gaps" and "back_to_back".
  CollectiveRecord own_gaps, own_back_to_back;
  bool stopped = false;  // by `stop`
};

// Repeats the recorded steps in two ways, in turn:
//   gaps          each rank's thread computes nothing, but sleeps as long as it
//                 computed between its calls. The step's time without these
//                 gaps is what stays exposed when nothing competes with
//                 communication for cores, memory and links.
//   back_to_back  without gaps: what the communication takes by itself.
// A trainer's exposed communication beyond that of `gaps` is what computing at
// the same time costs: cores, memory and links are shared. Waiting for ranks
// that compute longer is in both.
//
// An event that nobody was seen to wait for (all but Gloo's messages) counts as
// hidden until the step's end, or until a later event has to wait for it. Ranks
// start as far apart as they did, as far as that is known (LeadInSeconds).
//
// Collective over all ranks of `comm`, which are those of `control` and of
// `traffic`; `iterations` each way, in which the recorded steps take turns.
// Makes the groups that the trainer used. `stop`, set on any rank, ends it
// early with what was measured; Cancelled before the first iteration. Throws
// what a failed call throws.
absl::StatusOr<ReplayResult> Replay(Communicator& comm, Control& control,
                                    const RecordedTraffic& traffic,
                                    int64_t iterations,
                                    const std::atomic<bool>* stop = nullptr);

// A table in milliseconds: medians, and below them how far their 95 % intervals
// reach.
std::string FormatReplay(const ReplayResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_REPLAY_H_
