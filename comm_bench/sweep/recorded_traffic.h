// A trainer's recorded communication (--traffic_steps): read, checked before
// any of it is repeated, and converted to the actions of each rank.
#ifndef RANKWISE_COMM_BENCH_SWEEP_RECORDED_TRAFFIC_H_
#define RANKWISE_COMM_BENCH_SWEEP_RECORDED_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/collectives/collective.h"
#include "records/record.h"

namespace rankwise::comm_bench {

struct RecordedTraffic {
  std::string file;
  std::string trainer;                       // name of the binary: "ddp"
  std::string backend;                       // "gloo"
  std::map<std::string, std::string> flags;  // as in RunRecord
  int world_size = 1;
  std::vector<RecordedAxis> mesh;  // as in RunRecord; empty if unknown
  // ascending by step; each with the records of all ranks, by rank
  std::vector<std::vector<TrafficRecord>> steps;
};

// Returns the steps recorded by all ranks of the last run with recorded
// communication. Errors name the file: no such run, a number of ranks other
// than `world_size`, steps that lack ranks, and those of CheckTraffic.
absl::StatusOr<RecordedTraffic> ReadTraffic(const std::string& file,
                                            int world_size);

// Checks that the ranks' events of one step match, so that repeating each
// rank's events in order terminates: supported kinds (all_reduce, broadcast,
// reduce, all_gather, reduce_scatter, all_to_all, barrier, send, recv), buffers
// of a known type that divide among the ranks, existing peers and groups, as
// many messages received as sent in a group, in order and of equal size, and
// the same collectives on all ranks of a group. InvalidArgument names the step
// and the rank.
absl::Status CheckTraffic(const std::vector<TrafficRecord>& step);

// Returns the ranks of the event's group, in its order.
std::vector<int64_t> GroupOf(const RecordedTransfer& event, size_t world_size);
// Returns Call::count for the event of a collective: for an all_gather, a
// trainer records a rank's part.
int64_t RowCount(const RecordedTransfer& event, int group_size);
// Returns the table's entry of a collective that can be repeated; nullptr for
// messages, marks and other collectives.
const Collective* ReplayableCollective(const RecordedTransfer& event);
// Whether the event marks the beginning or the end of a coalesced launch.
bool IsCoalescingMark(const RecordedTransfer& event);
// Whether the event is a send or recv.
bool IsMessage(const RecordedTransfer& event);

// The start of an event by the rank's thread, or of a wait for one.
struct ReplayAction {
  enum class Kind { kStart, kWait };
  Kind kind = Kind::kStart;
  size_t event = 0;  // into TrafficRecord::events
  // Time from the previous action (its end, if known) to this one, in which the
  // rank computed.
  double gap_seconds = 0;
  // Events without an observed wait that had ended before this one started:
  // after the gap, they must have ended here, too. Each is in one action's list
  // only, and precedes it in `events`.
  std::vector<size_t> after = {};
};

// Returns the actions in order of time. Shortens the gap before the first
// action by `lead_in_seconds`. Events without an observed wait or end are
// awaited at the end of the step.
//
// Repeating the actions of all ranks cannot deadlock: every wait is for an
// event that had ended, which in the recorded run depended only on events and
// waits that precede it here, on all ranks.
std::vector<ReplayAction> PlanReplay(const TrafficRecord& record,
                                     double lead_in_seconds);

// Returns, for each rank of a step, how long it computes by its own clock
// before the first event of any rank, which need not be repeated. Ranks do not
// start a step simultaneously. The offset between two ranks is estimated from
// the collectives of their groups that end on all ranks together (all_reduce,
// all_gather, barrier: the median), and along chains of groups. Unconnected
// ranks are assumed to start together. A rank that started late has a shorter,
// possibly negative, lead-in.
std::vector<double> LeadInSeconds(const std::vector<TrafficRecord>& step);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RECORDED_TRAFFIC_H_
