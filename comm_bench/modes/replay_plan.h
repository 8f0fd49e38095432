// From what a rank recorded to what it does when that is repeated.
#ifndef RANKWISE_COMM_BENCH_MODES_REPLAY_PLAN_H_
#define RANKWISE_COMM_BENCH_MODES_REPLAY_PLAN_H_

#include <cstddef>
#include <vector>

#include "records/record.h"

namespace rankwise::comm_bench {

// A moment at which the rank's thread started an event or began to wait for
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
// a step at the same moment. How far apart they did is estimated from
// collectives that end on all ranks together (all_reduce, all_gather, barrier:
// the median of those of all ranks); without these they count as punctual. A
// rank that began late has a shorter, perhaps negative, lead-in.
std::vector<double> LeadInSeconds(const std::vector<TrafficRecord>& step);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_REPLAY_PLAN_H_
