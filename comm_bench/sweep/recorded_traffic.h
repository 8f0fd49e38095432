// What a trainer recorded of its communication (--traffic_steps): read back,
// checked before anything of it is repeated, and turned into what each rank
// does when it is.
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
  std::string trainer;                       // the binary: "ddp"
  std::string backend;                       // "gloo"
  std::map<std::string, std::string> flags;  // as in RunRecord
  int world_size = 1;
  std::vector<RecordedAxis> mesh;  // as in RunRecord; empty if unknown
  // Ascending by step; each with the records of all ranks, by rank.
  std::vector<std::vector<TrafficRecord>> steps;
};

// The steps that all ranks of the last run with recorded communication have
// recorded. Errors name the file: none recorded, a run of another number of
// ranks than `world_size`, steps that ranks are missing from, and what
// CheckTraffic refuses.
absl::StatusOr<RecordedTraffic> ReadTraffic(const std::string& file,
                                            int world_size);

// Whether the ranks' events of one step fit each other, so that repeating each
// rank's in its order ends: kinds that can be repeated (all_reduce, broadcast,
// reduce, all_gather, reduce_scatter, all_to_all, barrier, send, recv), buffers
// of a known type that divide among the ranks, peers and groups that exist, as
// many messages received as sent in a group, in order and of equal size, and
// the same collectives on all ranks of a group. InvalidArgument says
// at which step and rank not.
absl::Status CheckTraffic(const std::vector<TrafficRecord>& step);

// The ranks of the event's group, in its order.
std::vector<int64_t> GroupOf(const RecordedTransfer& event, size_t world_size);
// Call::count of the event of a collective: of an all_gather a trainer records
// a rank's part.
int64_t RowCount(const RecordedTransfer& event, int group_size);
// The table's entry of the event where such a one can be repeated; null for
// messages, marks and other collectives.
const Collective* ReplayableCollective(const RecordedTransfer& event);
// Marks around calls that one "coalesced" launches together.
bool IsCoalescingMark(const RecordedTransfer& event);
// send or recv.
bool IsMessage(const RecordedTransfer& event);

// When the rank's thread started an event or began to wait for
// one.
struct ReplayAction {
  enum class Kind { kStart, kWait };
  Kind kind = Kind::kStart;
  size_t event = 0;  // into TrafficRecord::events
  // Between the action before (its end, if that is known) and this one: the
  // rank computed.
  double gap_seconds = 0;
  // Events that nobody was seen waiting for, but that had ended before this
  // one started: after the gap, they must have ended here too. Each is in one
  // action's list only, and comes before it in `events`.
  std::vector<size_t> after = {};
};

// In the order of their time. Of the gap before the first action, what exceeds
// `lead_in_seconds` is kept. Events without a wait or an end are left to the
// end of the step.
//
// Repeating the actions of all ranks cannot deadlock: every wait is for an
// event that had ended, for which the recorded run needed no more than the
// events and waits that come before it here, on all ranks.
std::vector<ReplayAction> PlanReplay(const TrafficRecord& record,
                                     double lead_in_seconds);

// How long each rank of a step, by its own clock, computes before the first
// event of any rank: time that nobody needs to spend again. Ranks do not begin
// a step at the same moment. How far apart two of them did is estimated from
// the collectives of their groups that end on all ranks together (all_reduce,
// all_gather, barrier: the median); others follow along a chain of groups.
// Ranks that no chain connects count as punctual. A rank that began late has a
// shorter, perhaps negative, lead-in.
std::vector<double> LeadInSeconds(const std::vector<TrafficRecord>& step);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RECORDED_TRAFFIC_H_
