#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "analysis/stats/statistics.h"
#include "comm_bench/sweep/recorded_traffic.h"

namespace rankwise::comm_bench {
namespace {

struct TimedAction {
  double begin_seconds, end_seconds;
  ReplayAction action;
};

bool WaitWasSeen(const RecordedTransfer& event) {
  return std::isfinite(event.wait_start_seconds) &&
         std::isfinite(event.end_seconds);
}

std::vector<TimedAction> TimedActions(const TrafficRecord& record) {
  using Kind = ReplayAction::Kind;
  std::vector<TimedAction> actions;
  for (size_t i = 0; i < record.events.size(); ++i) {
    const RecordedTransfer& event = record.events[i];
    actions.push_back(
        {event.start_seconds, event.start_seconds, {Kind::kStart, i}});
    if (WaitWasSeen(event)) {
      actions.push_back(
          {event.wait_start_seconds, event.end_seconds, {Kind::kWait, i}});
    }
  }
  std::stable_sort(actions.begin(), actions.end(),
                   [](const TimedAction& a, const TimedAction& b) {
                     return a.begin_seconds < b.begin_seconds;
                   });
  return actions;
}

// When the collectives that end on all ranks together ended on this one.
std::vector<double> CommonEnds(const TrafficRecord& record, size_t ranks) {
  std::vector<double> ends;
  for (const RecordedTransfer& event : record.events) {
    const bool everybody = event.ranks.empty() || event.ranks.size() == ranks;
    if (everybody && (event.op == "all_reduce" || event.op == "all_gather" ||
                      event.op == "barrier")) {
      ends.push_back(event.end_seconds);
    }
  }
  return ends;
}

// Seconds by which each rank began the step after rank 0.
std::vector<double> StartOffsets(const std::vector<TrafficRecord>& step) {
  std::vector<double> offsets;
  const std::vector<double> first = CommonEnds(step[0], step.size());
  for (const TrafficRecord& record : step) {
    const std::vector<double> ends = CommonEnds(record, step.size());
    std::vector<double> apart;
    for (size_t i = 0; i < std::min(first.size(), ends.size()); ++i) {
      if (std::isfinite(first[i] - ends[i]))
        apart.push_back(first[i] - ends[i]);
    }
    offsets.push_back(apart.empty() ? 0 : Median(std::move(apart)));
  }
  return offsets;
}

}  // namespace

std::vector<ReplayAction> PlanReplay(const TrafficRecord& record,
                                     double lead_in_seconds) {
  std::vector<ReplayAction> plan;
  std::vector<size_t> unseen;  // started, with an end that nobody waited for
  double cursor = lead_in_seconds;
  for (TimedAction& timed : TimedActions(record)) {
    ReplayAction action = std::move(timed.action);
    action.gap_seconds = std::max(0.0, timed.begin_seconds - cursor);
    cursor = std::max(cursor, timed.end_seconds);
    if (action.kind == ReplayAction::Kind::kStart) {
      const auto ended = std::stable_partition(
          unseen.begin(), unseen.end(), [&](size_t other) {
            return record.events[other].end_seconds > timed.begin_seconds;
          });
      action.after.assign(ended, unseen.end());
      unseen.erase(ended, unseen.end());
      const RecordedTransfer& event = record.events[action.event];
      if (std::isfinite(event.end_seconds) && !WaitWasSeen(event)) {
        unseen.push_back(action.event);
      }
    }
    plan.push_back(std::move(action));
  }
  return plan;
}

std::vector<double> LeadInSeconds(const std::vector<TrafficRecord>& step) {
  const std::vector<double> offsets = StartOffsets(step);
  double earliest = std::numeric_limits<double>::infinity();
  for (size_t rank = 0; rank < step.size(); ++rank) {
    for (const RecordedTransfer& event : step[rank].events) {
      earliest = std::min(earliest, event.start_seconds + offsets[rank]);
    }
  }
  std::vector<double> lead_in;
  for (double offset : offsets) {
    lead_in.push_back(std::isfinite(earliest) ? earliest - offset : 0);
  }
  return lead_in;
}

}  // namespace rankwise::comm_bench
