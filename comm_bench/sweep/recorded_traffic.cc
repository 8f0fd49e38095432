#include "comm_bench/sweep/recorded_traffic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/stats/statistics.h"
#include "c10/core/ScalarType.h"
#include "records/record_reader.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Upper bound of a buffer's size, so that damaged values cannot overflow
// computations.
constexpr int64_t kMostBytes = int64_t{1} << 50;

using RanksOfStep = std::map<int64_t, TrafficRecord>;  // by rank

// One run of a file.
struct Run {
  std::string id, trainer, backend;
  int64_t world_size = 1;
  std::map<std::string, std::string> flags;
  std::vector<RecordedAxis> mesh;
  std::map<int64_t, RanksOfStep> steps;
};

absl::StatusOr<Run> LastRunWithTraffic(const std::string& file) {
  Run current, last;
  const auto visit = [&](const Record& record) {
    if (const auto* run = std::get_if<RunRecord>(&record)) {
      if (run->run_id == current.id) return absl::OkStatus();
      current = {
          run->run_id, run->binary, run->backend, run->world_size, run->flags,
          run->mesh,   {}};
    } else if (const auto* traffic = std::get_if<TrafficRecord>(&record)) {
      if (last.id != current.id) last = current;
      last.steps[traffic->step][traffic->rank] = *traffic;
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<ReadSummary> read =
      VisitRecords(file, {.tolerate_torn_lines = true}, visit);
  if (!read.ok()) return absl::InvalidArgumentError(read.status().message());
  if (last.steps.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file,
        ": holds no communication of a trainer; record some by training with "
        "--traffic_steps=2 --record=",
        file));
  }
  return last;
}

std::vector<int64_t> MissingRanks(const Run& run, const RanksOfStep& step) {
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < run.world_size; ++rank) {
    if (step.count(rank) == 0) missing.push_back(rank);
  }
  return missing;
}

absl::Status Bad(const TrafficRecord& record, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("step ", record.step, " of rank ", record.rank, ": ", why));
}

std::string Describe(const RecordedTransfer& event) {
  return absl::StrCat(event.op, " of ", event.count, " ", event.dtype);
}

std::string ReplayableNames() {
  std::vector<std::string> names;
  for (const Collective* collective : AllCollectives()) {
    if (collective->replayable) names.push_back(collective->name);
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckGroup(const TrafficRecord& record,
                        const RecordedTransfer& event, size_t world_size) {
  const std::vector<int64_t> group = GroupOf(event, world_size);
  const std::set<int64_t> ranks(group.begin(), group.end());
  const Collective* const collective = ReplayableCollective(event);
  const bool rooted = collective != nullptr && collective->rooted;
  if (ranks.size() != group.size() || *ranks.begin() < 0 ||
      *ranks.rbegin() >= static_cast<int64_t>(world_size) ||
      ranks.count(record.rank) == 0) {
    return Bad(record, absl::StrCat(event.op, " in a group of ranks ",
                                    absl::StrJoin(group, ", "),
                                    ", which is not within ", world_size,
                                    " ranks or lacks this one"));
  }
  if ((IsMessage(event) && event.peer == record.rank) ||
      ((IsMessage(event) || rooted) && ranks.count(event.peer) == 0)) {
    return Bad(record,
               absl::StrCat(event.op, " with rank ", event.peer,
                            ", which is not another rank of its group"));
  }
  const auto size = static_cast<int>(group.size());
  if (collective != nullptr &&
      RowCount(event, size) % collective->granularity(size) != 0) {
    return Bad(record, absl::StrCat(Describe(event), " does not divide among ",
                                    Counted(size, "rank")));
  }
  return absl::OkStatus();
}

absl::Status CheckEvent(const TrafficRecord& record,
                        const RecordedTransfer& event, size_t world_size) {
  if (IsCoalescingMark(event)) return absl::OkStatus();
  if (!IsMessage(event) && ReplayableCollective(event) == nullptr) {
    return Bad(record,
               absl::StrCat(event.op, " cannot be replayed; supported: ",
                            ReplayableNames(), ", send, recv"));
  }
  if (event.op != "barrier") {
    const absl::StatusOr<c10::ScalarType> dtype = ParseDtype(event.dtype);
    if (!dtype.ok()) return Bad(record, std::string(dtype.status().message()));
    const auto size = static_cast<int64_t>(c10::elementSize(*dtype));
    if (event.count < 0 || event.bytes > kMostBytes ||
        event.bytes % size != 0 || event.bytes / size != event.count) {
      return Bad(record,
                 absl::StrCat(Describe(event), " in ", event.bytes, " bytes"));
    }
  }
  return CheckGroup(record, event, world_size);
}

// Calls in order, by caller: of both sides of a channel, or of all ranks of a
// group.
using Calls = std::map<int64_t, std::vector<std::string>>;

absl::Status CheckSame(const TrafficRecord& record, const std::string& where,
                       const Calls& calls, size_t expected) {
  const auto& [first_rank, first] = *calls.begin();
  for (const auto& [rank, others] : calls) {
    const size_t both = std::min(first.size(), others.size());
    size_t i = 0;
    while (i < both && first[i] == others[i]) ++i;
    if (i == first.size() && i == others.size()) continue;
    const auto call = [&](const std::vector<std::string>& list) {
      return i < list.size() ? list[i] : std::string("nothing");
    };
    return absl::InvalidArgumentError(
        absl::StrCat("step ", record.step, ": number ", i + 1, " ", where,
                     " is ", call(first), " on rank ", first_rank, ", but ",
                     call(others), " on rank ", rank));
  }
  if (calls.size() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "step ", record.step, ": number 1 ", where, ", ", first[0],
      ", is called by ", calls.size(), " of its ", expected, " ranks only"));
}

// Calls that must agree, by the ranks involved.
struct Matching {
  using Group = std::vector<int64_t>;
  std::map<std::tuple<int64_t, int64_t, Group>, Calls> channels;  // from, to
  std::map<Group, Calls> groups;

  void Add(const TrafficRecord& record, const RecordedTransfer& event,
           size_t world_size) {
    if (IsCoalescingMark(event)) return;
    if (IsMessage(event)) {
      const bool sends = event.op == "send";
      const std::tuple channel(sends ? record.rank : event.peer,
                               sends ? event.peer : record.rank,
                               GroupOf(event, world_size));
      channels[channel][record.rank].push_back(
          absl::StrCat("one of ", event.bytes, " bytes"));
      return;
    }
    groups[GroupOf(event, world_size)][record.rank].push_back(absl::StrCat(
        Describe(event),
        event.peer < 0 ? "" : absl::StrCat(" from rank ", event.peer)));
  }
};

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

// Times on this rank of the ends of collectives that end on all ranks of a
// group together, by group.
using CommonEnds = std::map<std::vector<int64_t>, std::vector<double>>;

CommonEnds CommonEndsOf(const TrafficRecord& record, size_t world_size) {
  CommonEnds ends;
  for (const RecordedTransfer& event : record.events) {
    if (event.op == "all_reduce" || event.op == "all_gather" ||
        event.op == "barrier") {
      ends[GroupOf(event, world_size)].push_back(event.end_seconds);
    }
  }
  return ends;
}

// Returns how much later the second rank started the step; nullopt without a
// common end.
std::optional<double> SecondsApart(const CommonEnds& first,
                                   const CommonEnds& second) {
  std::vector<double> apart;
  for (const auto& [group, ends] : first) {
    const auto others = second.find(group);
    if (others == second.end()) continue;
    for (size_t i = 0; i < std::min(ends.size(), others->second.size()); ++i) {
      const double seconds = ends[i] - others->second[i];
      if (std::isfinite(seconds)) apart.push_back(seconds);
    }
  }
  if (apart.empty()) return std::nullopt;
  return Median(std::move(apart));
}

// Returns how much later each rank started the step than the lowest rank
// connected to it by a chain of groups.
std::vector<double> StartOffsets(const std::vector<TrafficRecord>& step) {
  std::vector<CommonEnds> ends;
  for (const TrafficRecord& record : step)
    ends.push_back(CommonEndsOf(record, step.size()));
  std::vector<std::optional<double>> offsets(step.size());
  const auto reach_from = [&](size_t from) {
    std::vector<size_t> chain = {from};
    for (size_t i = 0; i < chain.size(); ++i) {
      for (size_t to = 0; to < step.size(); ++to) {
        if (offsets[to].has_value()) continue;
        const auto apart = SecondsApart(ends[chain[i]], ends[to]);
        if (!apart.has_value()) continue;
        offsets[to] = *offsets[chain[i]] + *apart;
        chain.push_back(to);
      }
    }
  };
  std::vector<double> known;
  for (size_t rank = 0; rank < step.size(); ++rank) {
    if (!offsets[rank].has_value()) {
      offsets[rank] = 0;
      reach_from(rank);
    }
    known.push_back(*offsets[rank]);
  }
  return known;
}

}  // namespace

std::vector<int64_t> GroupOf(const RecordedTransfer& event, size_t world_size) {
  if (!event.ranks.empty()) return event.ranks;
  std::vector<int64_t> all(world_size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int64_t RowCount(const RecordedTransfer& event, int group_size) {
  return event.op == "all_gather" ? event.count * group_size : event.count;
}

const Collective* ReplayableCollective(const RecordedTransfer& event) {
  const auto found = FindCollective(event.op);
  return found.ok() && (*found)->replayable ? *found : nullptr;
}

bool IsCoalescingMark(const RecordedTransfer& event) {
  return event.op == "start_coalescing" || event.op == "coalesced";
}

bool IsMessage(const RecordedTransfer& event) {
  return event.op == "send" || event.op == "recv";
}

absl::Status CheckTraffic(const std::vector<TrafficRecord>& step) {
  Matching matching;
  for (const TrafficRecord& record : step) {
    for (const RecordedTransfer& event : record.events) {
      RETURN_IF_ERROR(CheckEvent(record, event, step.size()));
      matching.Add(record, event, step.size());
    }
  }
  for (const auto& [ends, calls] : matching.channels) {
    RETURN_IF_ERROR(
        CheckSame(step[0],
                  absl::StrCat("of the messages from rank ", std::get<0>(ends),
                               " to ", std::get<1>(ends)),
                  calls, 2));
  }
  for (const auto& [ranks, calls] : matching.groups) {
    RETURN_IF_ERROR(CheckSame(step[0],
                              absl::StrCat("of the collectives of ranks ",
                                           absl::StrJoin(ranks, ", ")),
                              calls, ranks.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordedTraffic> ReadTraffic(const std::string& file,
                                            int world_size) {
  ASSIGN_OR_RETURN(Run run, LastRunWithTraffic(file));
  if (run.world_size != world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": recorded with ", Counted(run.world_size, "rank"),
                     ", and here ", world_size == 1 ? "is " : "are ",
                     world_size, "; start as many"));
  }
  RecordedTraffic traffic;
  traffic.file = file;
  traffic.trainer = run.trainer;
  traffic.backend = run.backend;
  traffic.flags = run.flags;
  traffic.world_size = world_size;
  traffic.mesh = run.mesh;
  for (auto& [number, ranks] : run.steps) {
    if (!MissingRanks(run, ranks).empty()) continue;
    std::vector<TrafficRecord>& step = traffic.steps.emplace_back();
    for (auto& [rank, record] : ranks) step.push_back(std::move(record));
    absl::Status fits = CheckTraffic(step);
    if (!fits.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": ", fits.message()));
    }
  }
  if (!traffic.steps.empty()) return traffic;
  const auto& [number, ranks] = *run.steps.begin();
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": no step was recorded by all ranks; step ", number,
      " lacks that of rank ", absl::StrJoin(MissingRanks(run, ranks), ", ")));
}

std::vector<ReplayAction> PlanReplay(const TrafficRecord& record,
                                     double lead_in_seconds) {
  std::vector<ReplayAction> plan;
  // started, but without a wait for their recorded end
  std::vector<size_t> unseen;
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
