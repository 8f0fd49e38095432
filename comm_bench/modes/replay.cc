#include "comm_bench/modes/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/timing/agreement.h"
#include "comm_bench/timing/timing.h"
#include "parallel/device/device_event.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using Clock = std::chrono::steady_clock;
using RecordedGroup = std::vector<int64_t>;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sleeps, but ends on time: a sleep ends late by up to a scheduler's tick.
// Returns the elapsed time.
double Pass(double seconds) {
  constexpr double kSpinSeconds = 200e-6;
  const Clock::time_point start = Clock::now();
  if (seconds > kSpinSeconds) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(seconds - kSpinSeconds));
  }
  while (SecondsSince(start) < seconds) std::this_thread::yield();
  return SecondsSince(start);
}

// Returns all groups of the recorded steps, in rounds of disjoint groups, as
// required by Communicator::NewGroup.
std::vector<std::vector<RecordedGroup>> RoundsOfGroups(
    const RecordedTraffic& traffic) {
  std::set<RecordedGroup> groups;
  for (const std::vector<TrafficRecord>& step : traffic.steps) {
    for (const TrafficRecord& record : step) {
      for (const RecordedTransfer& event : record.events) {
        if (!event.ranks.empty()) groups.insert(event.ranks);
      }
    }
  }
  std::vector<std::vector<RecordedGroup>> rounds;
  std::vector<std::set<int64_t>> taken;
  for (const RecordedGroup& group : groups) {
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
  for (const std::vector<RecordedGroup>& round : RoundsOfGroups(traffic)) {
    RecordedGroup mine = {
        comm.rank()};  // if no group of the round has this rank
    for (const RecordedGroup& group : round) {
      if (std::count(group.begin(), group.end(), comm.rank()) > 0) mine = group;
    }
    ASSIGN_OR_RETURN(auto made,
                     comm.NewGroup("replay", {mine.begin(), mine.end()}));
    groups[mine] = made.process_group();
  }
  return groups;
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

// Combines the ranks' summaries of their own samples.
ReplayTimes SummarizedByRank(Control& control,
                             const std::vector<double>& seconds) {
  ReplayTimes times;
  const Estimate own = EstimateMedian(seconds);
  for (const std::vector<double>& told :
       control.Gather({own.value, own.low, own.high})) {
    times.ranks.push_back({told[0], told[1], told[2]});
  }
  times.slowest = EstimateMedian(control.Max(seconds));
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

// Runs all steps in turn; sets this rank's samples, and whether it was stopped.
// The first repetition of each step is warm-up.
void RunSteps(std::vector<StepReplay>& steps, int64_t iterations,
              Control& control, const std::atomic<bool>* stop,
              ReplayResult& result) {
  for (StepReplay& step : steps) {
    control.Barrier();
    step.Run(/*keep_gaps=*/false);
  }
  const auto begin = Clock::now();
  const auto run = [&](StepReplay& step, bool keep_gaps,
                       CollectiveRecord& own) {
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

// Sets this rank's record, except for its samples.
void DescribeSamples(const char* layer, const Control& control, bool stopped,
                     CollectiveRecord& record) {
  record.rank = control.rank();
  record.group_size = control.world_size();
  record.collective = "replay";
  record.layer = layer;
  record.end =
      EndName(stopped ? Series::End::kInterrupted : Series::End::kCounted);
}

// Completes the line, and appends the line of intervals.
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

StepReplay::StepReplay(const TrafficRecord& record, double lead_in_seconds,
                       const ReplayGroups& groups, c10::Device device)
    : device_(device), plan_(PlanReplay(record, lead_in_seconds)) {
  // Messages from one rank to another are received in the order of their
  // sending.
  std::map<std::tuple<c10d::ProcessGroup*, std::string, int>, int> next_tag;
  for (const RecordedTransfer& recorded : record.events) {
    Event& event = events_.emplace_back(Prepare(recorded, groups));
    event.tag = next_tag[{event.group.get(), event.op, event.peer}]++;
  }
}

StepReplay::Event StepReplay::Prepare(const RecordedTransfer& recorded,
                                      const ReplayGroups& groups) {
  Event event;
  event.op = recorded.op;
  event.group = groups.at(recorded.ranks);
  event.collective = ReplayableCollective(recorded);
  const auto& ranks = recorded.ranks;
  event.peer = static_cast<int>(
      ranks.empty() ? recorded.peer
                    : std::find(ranks.begin(), ranks.end(), recorded.peer) -
                          ranks.begin());
  Call& call = event.call;
  call.device = device_;
  if (recorded.op == "barrier" || IsCoalescingMark(recorded)) return event;
  call.dtype = *ParseDtype(recorded.dtype);
  call.rank = event.group->getRank();
  call.world_size = event.group->getSize();
  call.count = RowCount(recorded, call.world_size);
  if (event.collective == nullptr) {
    event.buffers.input_parts = {
        at::zeros({call.count}, at::device(device_).dtype(call.dtype))};
    return event;
  }
  if (event.collective->rooted) call.root = event.peer;
  call.in_place = event.collective->prefers_in_place;
  event.buffers = event.collective->make(call);
  event.buffers.input.zero_();
  event.buffers.output.zero_();
  return event;
}

void StepReplay::Start(Event& event) {
  c10d::ProcessGroup& group = *event.group;
  Works& works = event.works;
  auto& message = event.buffers.input_parts;
  if (event.collective != nullptr) {
    event.collective->start(group, event.call, event.buffers, works);
  } else if (event.op == "send") {
    works.push_back(group.send(message, event.peer, event.tag));
  } else if (event.op == "recv") {
    works.push_back(group.recv(message, event.peer, event.tag));
  } else if (group.getBackend(device_.type())->supportsCoalescing()) {
    // Marks: a backend without coalescing starts the calls one by one.
    if (event.op == "coalesced") {
      works.push_back(group.endCoalescing(device_.type()));
    } else {
      group.startCoalescing(device_.type());
    }
  }
}

void StepReplay::AwaitEnd(Event& event) {
  for (const auto& work : event.works) {
    if (work != nullptr) work->wait();
  }
  event.works.clear();
}

double StepReplay::Run(bool keep_gaps) {
  const Clock::time_point start = Clock::now();
  double passed = 0;
  for (const ReplayAction& action : plan_) {
    if (keep_gaps) passed += Pass(action.gap_seconds);
    for (const size_t other : action.after) AwaitEnd(events_[other]);
    Event& event = events_[action.event];
    if (action.kind == ReplayAction::Kind::kStart) {
      Start(event);
    } else {
      AwaitEnd(event);
    }
  }
  for (Event& event : events_) AwaitEnd(event);
  SynchronizeDevice(device_);
  return SecondsSince(start) - passed;
}

absl::StatusOr<ReplayResult> Replay(Communicator& comm, Control& control,
                                    const RecordedTraffic& traffic,
                                    int64_t iterations,
                                    const std::atomic<bool>* stop) {
  ASSIGN_OR_RETURN(const ReplayGroups groups, MakeGroups(traffic, comm));
  ReplayResult result = Describe(traffic);
  std::vector<StepReplay> steps;
  for (const std::vector<TrafficRecord>& step : traffic.steps) {
    const auto rank = static_cast<size_t>(comm.rank());
    steps.emplace_back(step[rank], LeadInSeconds(step)[rank], groups,
                       comm.device());
  }
  RunSteps(steps, iterations, control, stop, result);
  if (result.iterations == 0) {
    return absl::CancelledError("interrupted; no iteration was measured");
  }
  DescribeSamples("gaps", control, result.stopped, result.own_gaps);
  DescribeSamples("back_to_back", control, result.stopped,
                  result.own_back_to_back);
  result.gaps = SummarizedByRank(control, result.own_gaps.seconds);
  result.back_to_back =
      SummarizedByRank(control, result.own_back_to_back.seconds);
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
