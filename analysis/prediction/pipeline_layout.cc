#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/prediction/recordings.h"
#include "analysis/stats/statistics.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Returns the completion times of the last gradients of a rank's stages,
// ascending.
std::vector<double> GradientsDone(const std::vector<Span>& spans) {
  std::map<int32_t, double> done;
  for (const Span& span : spans) {
    if (span.action.kind != ActionKind::kBackward &&
        span.action.kind != ActionKind::kWeightGrad)
      continue;
    double& last = done[span.action.stage];
    last = std::max(last, span.end_seconds);
  }
  std::vector<double> seconds;
  for (const auto& [stage, last] : done) seconds.push_back(last);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

using Recordings = std::vector<const RecordedPipeline*>;

// Each rank's all-reduces over the replicas, by stage, in the order in which
// the stages' gradients are done.
using StageGradients = std::vector<std::vector<double>>;  // [pp][], bytes

absl::Status NothingFits(const Layout& layout, const char* why) {
  return absl::FailedPreconditionError(absl::StrCat(
      layout.Name(), ": ", why,
      "; add to the records: bazel run "
      "//trainers:pipeline -- --nproc=",
      layout.pp, " --pp=", layout.pp, " --schedule=", layout.schedule,
      layout.chunks > 0 ? absl::StrCat(" --chunks=", layout.chunks) : "",
      " --batch_size=", layout.micro_batch,
      " --microbatches=", layout.micro_batches, " --record=FILE"));
}

// Returns the repetitions of the recorded configuration most similar to
// `layout`.
absl::StatusOr<Recordings> FindStages(
    absl::Span<const RecordedPipeline> recordings, const Layout& layout,
    const Schedule& schedule) {
  const auto unlikeness = [&](const RecordedPipeline& recorded) {
    const double micro_batches = recorded.micro_batches;
    return std::make_tuple(
        recorded.schedule != layout.schedule, std::abs(recorded.dp - layout.dp),
        std::abs(std::log(micro_batches / layout.micro_batches)),
        recorded.schedule);
  };
  // A schedule file may split backward, too.
  const bool cuts =
      absl::c_any_of(schedule.actions[0], [](const Action& action) {
        return action.kind == ActionKind::kWeightGrad;
      });
  bool other_stages = true;
  std::map<std::tuple<bool, int64_t, double, std::string>, Recordings> found;
  for (const RecordedPipeline& recorded : recordings) {
    if (recorded.pp != layout.pp || recorded.stages != schedule.num_stages() ||
        recorded.micro_batch_examples != layout.micro_batch) {
      continue;
    }
    other_stages = false;
    if (cuts && !recorded.cuts_backward) continue;
    found[unlikeness(recorded)].push_back(&recorded);
  }
  if (!found.empty()) return found.begin()->second;
  return NothingFits(
      layout,
      other_stages
          ? "no timeline of as many stages on as many ranks, with "
            "micro-batches as large, was recorded, and the stages of "
            "another cut are not those of this one"
          : "the durations of the halves of its backward were not recorded");
}

void AddOnce(const std::vector<std::string>& more,
             std::vector<std::string>& lines) {
  for (const std::string& line : more) {
    if (!absl::c_linear_search(lines, line)) lines.push_back(line);
  }
}

// Cost of messages between two stages: a line through the smallest and the
// largest.
struct MessageCosts {
  double low_bytes = 0, high_bytes = 0;
  CostEstimate low, high;
  bool own = false;  // measured by the trainer
  std::vector<std::string> extrapolations = {};

  LinkCosts At(CostSide side) const {
    const double most = SecondsAt(high, side);
    LinkCosts link;
    if (high_bytes > low_bytes) {
      link.beta_seconds_per_byte = std::max(
          0.0, (most - SecondsAt(low, side)) / (high_bytes - low_bytes));
    }
    link.alpha_seconds =
        std::max(0.0, most - link.beta_seconds_per_byte * high_bytes);
    return link;
  }
};

// Ranks vary faster along dp than along pp.
int64_t HostOf(const Layout& layout, int64_t stage, int64_t replica) {
  if (layout.ranks_per_host == 0) return 0;
  return (stage * layout.dp + replica) / layout.ranks_per_host;
}

// Returns the largest number of hosts of a stage's replicas.
int64_t HostsOfReplicas(const Layout& layout) {
  int64_t hosts = 1;
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    hosts = std::max(hosts, 1 + HostOf(layout, stage, layout.dp - 1) -
                                HostOf(layout, stage, 0));
  }
  return hosts;
}

// Returns 2 if a message crosses hosts, else 1.
int64_t HostsOfMessages(const Layout& layout) {
  for (int64_t replica = 0; replica < layout.dp; ++replica) {
    if (HostOf(layout, layout.pp - 1, replica) != HostOf(layout, 0, replica))
      return 2;
  }
  return 1;
}

// Uses the trainer's measurement if the network has no costs of messages.
MessageCosts MessageCostsOf(const NetworkModel& network, const Layout& layout,
                            const RecordedPipeline& recorded) {
  double low = 0, high = 0;
  for (const StageCosts& stage : recorded.steps[0].stages) {
    if (stage.output_bytes == 0) continue;
    low = low == 0 ? stage.output_bytes : std::min(low, stage.output_bytes);
    high = std::max(high, stage.output_bytes);
  }
  const int64_t hosts = HostsOfMessages(layout);
  const absl::string_view name = network.MessagesName(hosts > 1);
  const auto at_low = network.Estimate(name, low, 2, hosts);
  const auto at_high = network.Estimate(name, high, 2, hosts);
  if (at_low.ok() && at_high.ok()) {
    MessageCosts costs = {low, high, *at_low, *at_high};
    for (const double bytes : {low, high}) {
      AddOnce(network.Extrapolations(name, bytes, 2, hosts),
              costs.extrapolations);
    }
    return costs;
  }
  const double measured = recorded.message_seconds;
  const CostEstimate any = {measured, {measured, measured}};
  return {0, 0, any, any, /*own=*/true};
}

// Returns the longest duration of a rank from its first action's start to its
// last action's end.
double LongestSpan(const Timeline& timeline) {
  double longest = 0;
  for (const std::vector<Span>& rank : timeline.ranks) {
    longest = std::max(longest, ExtentOf(rank).seconds());
  }
  return longest;
}

// Returns the ratio of the measured to the simulated span of the recorded
// layout, which includes what the simulator omits; median over steps.
absl::StatusOr<double> Calibrate(const Recordings& recordings) {
  const RecordedPipeline& first = *recordings[0];
  const absl::StatusOr<Schedule> schedule =
      MakeSchedule(first.schedule,
                   {.num_ranks = static_cast<int>(first.pp),
                    .num_micro_batches = static_cast<int>(first.micro_batches),
                    .chunks = static_cast<int>(first.stages / first.pp)});
  if (!schedule.ok()) return 1.0;  // the schedule's file is not available
  std::vector<double> ratios;
  for (const RecordedPipeline* recorded : recordings) {
    for (const RecordedStages& step : recorded->steps) {
      SimulationCosts costs{step.stages, {recorded->message_seconds, 0}};
      ASSIGN_OR_RETURN(const Timeline timeline, Simulate(*schedule, costs));
      ratios.push_back(step.span_seconds / LongestSpan(timeline));
    }
  }
  return Median(ratios);
}

// Returns the bytes that each rank's stages all-reduce over the replicas.
absl::StatusOr<StageGradients> GradientsOf(
    absl::Span<const RecordedPipeline> all, const RecordedPipeline& recorded,
    const Layout& layout, double gradient_bytes,
    std::vector<std::string>* assumptions) {
  for (const RecordedPipeline& other : all) {
    if (other.pp == recorded.pp && other.stages == recorded.stages &&
        static_cast<int64_t>(other.gradient_bytes.size()) == other.pp)
      return other.gradient_bytes;
  }
  if (gradient_bytes == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        layout.Name(),
        ": how many bytes of gradients its replicas average was "
        "not recorded; add to the records: bazel run //trainers:ddp -- "
        "--nproc=2 --traffic_steps=10 --record=FILE"));
  }
  assumptions->push_back(absl::StrFormat(
      "the stages' shares of %.3g MB of gradients are assumed to be those of "
      "their ranks in the optimizer's time",
      gradient_bytes * 1e-6));
  const double total = absl::c_accumulate(recorded.optimizer_seconds, 0.0);
  const int64_t chunks = recorded.stages / recorded.pp;
  StageGradients gradients;
  for (double seconds : recorded.optimizer_seconds) {
    const double share = total > 0 ? seconds / total : 1.0 / recorded.pp;
    gradients.emplace_back(chunks, gradient_bytes * share / chunks);
  }
  return gradients;
}

// Returns the fullest rank's peak memory: as recorded, if the schedule keeps no
// more activations than the recorded one; else by a line through recordings of
// the same stages that keep different numbers; 0 if unknown.
double PeakBytesOf(absl::Span<const RecordedPipeline> all,
                   const RecordedPipeline& recorded,
                   const ScheduleFacts& facts) {
  double largest = 0;
  for (size_t place = 0; place < recorded.peak_bytes.size(); ++place) {
    const double base = recorded.peak_bytes[place];
    const int64_t kept = recorded.peak_activations[place];
    const double more = facts.peak_activations[place] - kept;
    if (base == 0) return 0;
    double slope = -1;
    for (const RecordedPipeline& other : all) {
      if (other.pp != recorded.pp || other.stages != recorded.stages ||
          other.micro_batch_examples != recorded.micro_batch_examples ||
          other.peak_activations[place] == kept ||
          other.peak_bytes[place] == 0) {
        continue;
      }
      slope = std::max(slope, (other.peak_bytes[place] - base) /
                                  (other.peak_activations[place] - kept));
    }
    if (more > 0 && slope < 0) return 0;
    largest = std::max(largest, base + std::max(0.0, more) * slope);
  }
  return largest;
}

std::vector<std::string> Assumptions(const RecordedPipeline& recorded,
                                     double scale, bool own_messages) {
  std::vector<std::string> lines = {absl::StrFormat(
      "stages as measured in %s with %d ranks and %d micro-batches, where the "
      "schedule took %.2f times as long as its simulation; so it does here",
      recorded.schedule, recorded.pp * recorded.dp, recorded.micro_batches,
      scale)};
  if (own_messages) {
    lines.push_back(
        "the cost of messages between stages is the trainer's own measurement: "
        "the network's costs have none");
  }
  return lines;
}

// Costs of the all-reduces of each rank's stages.
using StageCalls = std::vector<std::vector<CostEstimate>>;  // [pp][]

// Simulates the steps of `run` in another schedule and with other communication
// costs.
absl::StatusOr<std::vector<StepSample>> SamplesOf(const RecordedPipeline& run,
                                                  const Schedule& schedule,
                                                  const MessageCosts& messages,
                                                  const StageCalls& calls,
                                                  double scale) {
  const auto times = [&](const RecordedStages& step,
                         CostSide side) -> absl::StatusOr<StepTimes> {
    ASSIGN_OR_RETURN(const Timeline timeline,
                     Simulate(schedule, {step.stages, messages.At(side)}));
    std::vector<std::vector<double>> all_reduce;
    for (const std::vector<CostEstimate>& rank : calls) {
      all_reduce.push_back(NumbersOf(rank, [side](const CostEstimate& call) {
        return SecondsAt(call, side);
      }));
    }
    return PipelineStep(timeline, scale, all_reduce, run.outside_seconds);
  };
  std::vector<StepSample> samples;
  for (const RecordedStages& step : run.steps) {
    StepSample& sample = samples.emplace_back();
    ASSIGN_OR_RETURN(sample.low, times(step, CostSide::kLow));
    ASSIGN_OR_RETURN(sample.middle, times(step, CostSide::kMiddle));
    ASSIGN_OR_RETURN(sample.high, times(step, CostSide::kHigh));
  }
  return samples;
}

// Returns "each of 4 replicas is assumed to compute like the recorded one:
// ...".
std::string ComputeOf(int64_t replicas, int64_t recorded) {
  return absl::StrCat(
      replicas == 1 ? "the replica"
                    : absl::StrCat("each of ", replicas, " replicas"),
      " is assumed to compute like ",
      recorded == 1 ? "the recorded one"
                    : absl::StrCat("each of the ", recorded, " recorded ones"),
      replicas > recorded ? ": additional replicas have their own cores"
                          : ": no faster, even if fewer share a host");
}

}  // namespace

StepTimes PipelineStep(const Timeline& timeline, double scale,
                       const std::vector<std::vector<double>>& all_reduce,
                       absl::Span<const double> outside) {
  StepTimes times;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const Extent extent = ExtentOf(timeline.ranks[rank]);
    const std::vector<double> ready = GradientsDone(timeline.ranks[rank]);
    double done = 0;
    for (size_t i = 0; i < all_reduce[rank].size() && i < ready.size(); ++i) {
      done = std::max(done, scale * ready[i]) + all_reduce[rank][i];
    }
    const double exposed = std::max(0.0, done - scale * extent.end_seconds);
    const double span = scale * extent.seconds();
    const double seconds = span + exposed + outside[rank];
    if (seconds <= times.step_seconds) continue;
    times.step_seconds = seconds;
    times.exposed_comm_seconds = exposed;
    times.bubble_seconds = std::max(0.0, span - extent.busy_seconds());
  }
  return times;
}

absl::StatusOr<SimulatedLayout> SimulatePipelineLayout(
    absl::Span<const RecordedPipeline> recordings, const Layout& layout,
    double gradient_bytes, const NetworkModel& network) {
  ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(layout.schedule,
                   {.num_ranks = static_cast<int>(layout.pp),
                    .num_micro_batches = static_cast<int>(layout.micro_batches),
                    .chunks = static_cast<int>(layout.chunks)}));
  ASSIGN_OR_RETURN(const ScheduleFacts facts, Validate(schedule));
  ASSIGN_OR_RETURN(const Recordings found,
                   FindStages(recordings, layout, schedule));
  ASSIGN_OR_RETURN(const double scale, Calibrate(found));

  const RecordedPipeline& recorded = *found.front();
  const MessageCosts messages = MessageCostsOf(network, layout, recorded);
  SimulatedLayout result;
  result.assumptions = Assumptions(recorded, scale, messages.own);
  if (HostsOfMessages(layout) > 1) {
    result.assumptions.push_back(
        messages.own
            ? "messages between hosts are assumed to cost as much as the "
              "recorded ones"
            : "all messages are assumed to cost as much as one between hosts");
  }
  StageGradients gradients(layout.pp);
  if (layout.dp > 1) {
    ASSIGN_OR_RETURN(gradients,
                     GradientsOf(recordings, recorded, layout, gradient_bytes,
                                 &result.assumptions));
  }
  if (recorded.dp != layout.dp) {
    result.extrapolations.push_back(ComputeOf(layout.dp, recorded.dp));
  }
  AddOnce(messages.extrapolations, result.extrapolations);
  for (const CostEstimate* cost : {&messages.low, &messages.high})
    result.conditions.insert(cost->conditions.begin(), cost->conditions.end());
  StageCalls calls;
  for (const std::vector<double>& rank : gradients) {
    std::vector<CostEstimate>& of_rank = calls.emplace_back();
    for (const double bytes : rank) {
      ASSIGN_OR_RETURN(of_rank.emplace_back(),
                       network.Estimate("all_reduce", bytes, layout.dp,
                                        HostsOfReplicas(layout)));
      const std::set<std::string>& conditions = of_rank.back().conditions;
      result.conditions.insert(conditions.begin(), conditions.end());
      AddOnce(network.Extrapolations("all_reduce", bytes, layout.dp,
                                     HostsOfReplicas(layout)),
              result.extrapolations);
    }
  }
  for (const RecordedPipeline* run : found) {
    ASSIGN_OR_RETURN(result.runs.emplace_back(),
                     SamplesOf(*run, schedule, messages, calls, scale));
  }
  result.waiting = layout.dp;
  result.peak_bytes = PeakBytesOf(recordings, recorded, facts);
  return result;
}

}  // namespace rankwise
