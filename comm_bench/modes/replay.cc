#include "comm_bench/modes/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/modes/recorded_traffic.h"
#include "comm_bench/modes/replay_plan.h"
#include "comm_bench/modes/step_replay.h"
#include "comm_bench/timing/any_stopped.h"
#include "comm_bench/timing/order_statistics.h"
#include "comm_bench/timing/seconds_since.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using Group = std::vector<int64_t>;

// All groups of the recorded steps, in rounds of groups that have no rank in
// common: as Communicator::NewGroup wants them made.
std::vector<std::vector<Group>> RoundsOfGroups(const RecordedTraffic& traffic) {
  std::set<Group> groups;
  for (const std::vector<TrafficRecord>& step : traffic.steps) {
    for (const TrafficRecord& record : step) {
      for (const RecordedTransfer& event : record.events) {
        if (!event.ranks.empty()) groups.insert(event.ranks);
      }
    }
  }
  std::vector<std::vector<Group>> rounds;
  std::vector<std::set<int64_t>> taken;
  for (const Group& group : groups) {
    const auto fits = [&](const std::set<int64_t>& ranks) {
      return std::none_of(group.begin(), group.end(),
                          [&](int64_t rank) { return ranks.count(rank) > 0; });
    };
    const auto round =
        std::find_if(taken.begin(), taken.end(), fits) - taken.begin();
    if (round == static_cast<std::ptrdiff_t>(taken.size())) {
      taken.emplace_back();
      rounds.emplace_back();
    }
    taken[round].insert(group.begin(), group.end());
    rounds[round].push_back(group);
  }
  return rounds;
}

absl::StatusOr<ReplayGroups> MakeGroups(const RecordedTraffic& traffic,
                                        Communicator& comm) {
  ReplayGroups groups = {{{}, comm.process_group()}};
  for (const std::vector<Group>& round : RoundsOfGroups(traffic)) {
    Group mine = {comm.rank()};  // where no group of the round has this rank
    for (const Group& group : round) {
      if (std::count(group.begin(), group.end(), comm.rank()) > 0) mine = group;
    }
    auto made = comm.NewGroup("replay", {mine.begin(), mine.end()});
    if (!made.ok()) return made.status();
    groups[mine] = *std::move(made);
  }
  return groups;
}

// NCCL matches messages by their order, and blocks where two ranks both send
// first and nothing launches the calls together.
absl::Status CheckBackend(const RecordedTraffic& traffic,
                          const Communicator& comm) {
  if (comm.backend() != "nccl" || traffic.backend == "nccl") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      traffic.file, ": recorded over ", traffic.backend,
      ", whose order of messages may block NCCL; record it over nccl, or "
      "replay it with --backend=",
      traffic.backend));
}

// [rank][value]
ReplayTimes Summarized(const std::vector<std::vector<double>>& seconds) {
  ReplayTimes times;
  std::vector<double> slowest = seconds[0];
  for (const std::vector<double>& rank : seconds) {
    times.ranks.push_back(EstimateMedian(rank));
    for (size_t i = 0; i < rank.size(); ++i) {
      slowest[i] = std::max(slowest[i], rank[i]);
    }
  }
  times.slowest = EstimateMedian(std::move(slowest));
  return times;
}

ReplayTimes OfTrainer(const RecordedTraffic& traffic,
                      double TrafficRecord::*seconds) {
  std::vector<std::vector<double>> values(traffic.world_size);
  for (const std::vector<TrafficRecord>& step : traffic.steps) {
    for (size_t rank = 0; rank < step.size(); ++rank) {
      values[rank].push_back(step[rank].*seconds);
    }
  }
  return Summarized(values);
}

ReplayResult Describe(const RecordedTraffic& traffic) {
  ReplayResult result;
  result.trainer = traffic.trainer;
  for (const auto& step : traffic.steps) result.steps.push_back(step[0].step);
  for (const TrafficRecord& record : traffic.steps[0]) {
    int64_t calls = 0, bytes = 0;
    for (const RecordedTransfer& event : record.events) {
      if (IsCoalescingMark(event)) continue;
      ++calls;
      bytes += event.bytes;
    }
    result.calls.push_back(calls);
    result.bytes.push_back(bytes);
  }
  result.step = OfTrainer(traffic, &TrafficRecord::step_seconds);
  result.exposed = OfTrainer(traffic, &TrafficRecord::exposed_comm_seconds);
  return result;
}

// Runs all steps in turn; fills in this rank's samples, and whether it was
// stopped. The first repetition of each step warms up.
void RunSteps(std::vector<StepReplay>& steps, int64_t iterations,
              Control& control, const std::atomic<bool>* stop,
              ReplayResult& result) {
  for (StepReplay& step : steps) {
    control.Barrier();
    step.Run(/*keep_gaps=*/false);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto run = [&](StepReplay& step, bool keep_gaps, ReplaySamples& own) {
    control.Barrier();
    own.start_seconds.push_back(SecondsSince(begin));
    own.seconds.push_back(step.Run(keep_gaps));
  };
  for (int64_t i = 0; i < iterations; ++i) {
    result.stopped = AnyStopped(control, stop);
    if (result.stopped) break;
    StepReplay& step = steps[static_cast<size_t>(i) % steps.size()];
    run(step, /*keep_gaps=*/true, result.own_gaps);
    run(step, /*keep_gaps=*/false, result.own_back_to_back);
    ++result.iterations;
  }
}

// Ends the line, and adds that of the intervals.
void AppendTimes(const Estimate& step, const Estimate& exposed,
                 const Estimate& gaps, const Estimate& back_to_back,
                 std::string& text) {
  const Estimate all[] = {step, exposed, gaps, Difference(exposed, gaps),
                          back_to_back};
  constexpr int kWidths[] = {16, 16, 6, 15, 12};
  std::string reaches = absl::StrFormat("  %-24s", "  +-");
  for (size_t i = 0; i < std::size(all); ++i) {
    const double reach = all[i].reach();
    const char* apart = i == 0 ? "" : "  ";
    absl::StrAppendFormat(&text, "%s%*.3f", apart, kWidths[i],
                          all[i].value * 1e3);
    absl::StrAppendFormat(
        &reaches, "%s%*s", apart, kWidths[i],
        std::isnan(reach) ? "-" : absl::StrFormat("%.3f", reach * 1e3));
  }
  absl::StrAppend(&text, "\n", reaches, "\n");
}

}  // namespace

absl::StatusOr<ReplayResult> Replay(Communicator& comm, Control& control,
                                    const ReplayConfig& config,
                                    const std::atomic<bool>* stop) {
  const absl::StatusOr<RecordedTraffic> traffic =
      ReadTraffic(config.file, comm.world_size());
  if (!traffic.ok()) return traffic.status();
  absl::Status fits = CheckBackend(*traffic, comm);
  if (!fits.ok()) return fits;
  absl::StatusOr<ReplayGroups> groups = MakeGroups(*traffic, comm);
  if (!groups.ok()) return groups.status();
  ReplayResult result = Describe(*traffic);
  try {
    std::vector<StepReplay> steps;
    for (const std::vector<TrafficRecord>& step : traffic->steps) {
      const auto rank = static_cast<size_t>(comm.rank());
      steps.emplace_back(step[rank], LeadInSeconds(step)[rank], *groups,
                         comm.device());
    }
    RunSteps(steps, config.iterations, control, stop, result);
    if (result.iterations == 0) {
      return absl::CancelledError("interrupted; no iteration was measured");
    }
    result.gaps = Summarized(control.Gather(result.own_gaps.seconds));
    result.back_to_back =
        Summarized(control.Gather(result.own_back_to_back.seconds));
  } catch (const std::exception& error) {
    return comm.ExplainFailure("replaying recorded communication", error);
  }
  return result;
}

std::string FormatReplay(const ReplayResult& result) {
  std::string text = absl::StrFormat(
      "replay of %s, ranks %d, %d steps from %d to %d; medians of %d "
      "iterations each way, milliseconds per step; +-: 95 %% intervals\n"
      "  rank     calls        MB  trainer's step  exposed: trainer  replay"
      "  computing costs  back to back\n",
      result.trainer, result.calls.size(), result.steps.size(),
      result.steps.front(), result.steps.back(), result.iterations);
  for (size_t rank = 0; rank < result.calls.size(); ++rank) {
    absl::StrAppendFormat(&text, "  %4d  %8d  %8.3f", rank, result.calls[rank],
                          static_cast<double>(result.bytes[rank]) * 1e-6);
    AppendTimes(result.step.ranks[rank], result.exposed.ranks[rank],
                result.gaps.ranks[rank], result.back_to_back.ranks[rank], text);
  }
  absl::StrAppendFormat(&text, "  %-24s", "slowest rank");
  AppendTimes(result.step.slowest, result.exposed.slowest, result.gaps.slowest,
              result.back_to_back.slowest, text);
  return text;
}

}  // namespace rankwise::comm_bench
