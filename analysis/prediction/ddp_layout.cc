#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Runs = std::vector<const RecordedDdp*>;

// Ranks that share a host's cores determine the computation.
int64_t RanksOnHost(const RecordedDdp& run) {
  return (run.world_size + run.hosts - 1) / run.hosts;
}

// A number of ranks, and how many share a host.
struct Place {
  int64_t world_size = 1;
  int64_t ranks = 1;  // per host
};

using Unlikeness = std::tuple<int, int64_t, bool, int64_t>;

// Smaller is more similar. With equal ranks per host, the nearest world size is
// the most similar.
Unlikeness UnlikenessTo(const Place& place, const RecordedDdp& run) {
  const bool skips = run.skips_communication;
  const int64_t own = RanksOnHost(run);
  const int64_t distance = std::abs(run.world_size - place.world_size);
  if (run.fake) return {0, 0, skips, 0};
  if (own == place.ranks) return {0, 0, skips, distance};
  if (own < place.ranks) return {1, -own, skips, distance};
  return {2, own, skips, distance};
}

// Returns the runs with this batch at the most similar place.
Runs MostAlike(const DdpRecordings& recordings, double batch,
               const Place& place) {
  std::map<Unlikeness, Runs> by_unlikeness;
  for (const RecordedDdp& run : recordings.runs) {
    if (run.batch != batch) continue;
    by_unlikeness[UnlikenessTo(place, run)].push_back(&run);
  }
  return by_unlikeness.empty() ? Runs() : by_unlikeness.begin()->second;
}

ComputeParts MedianParts(const Runs& runs) {
  ComputeParts medians;
  for (const auto part : kComputeParts) {
    std::vector<double> seconds;
    for (const RecordedDdp* run : runs) {
      for (const ComputeParts& step : run->steps) seconds.push_back(step.*part);
    }
    medians.*part = Median(seconds);
  }
  return medians;
}

// Fits a line to (batch, part) by least squares and evaluates it at `batch`; if
// the result is negative, scales the part of the smallest batch.
double LineAt(const std::map<double, ComputeParts>& parts,
              double ComputeParts::*part, double batch) {
  LeastSquares sums;
  for (const auto& [size, measured] : parts) sums.Add(1, size, measured.*part);
  const auto [start, slope] = sums.Solve();
  const double value = start + slope * batch;
  const auto smallest = parts.begin();
  const double least =
      smallest->second.*part * std::min(1.0, batch / smallest->first) * 0.5;
  return std::max(value, least);
}

absl::Status OneBatchOnly(double batch, double recorded) {
  return absl::FailedPreconditionError(absl::StrCat(
      "ddp was recorded with batch ", BatchText(recorded),
      " per rank only, so the computing time of batch ", BatchText(batch),
      " is not known; add to the records: bazel run //trainers:ddp -- "
      "--batch_size=",
      BatchText(batch), " --traffic_steps=10 --record=FILE"));
}

// Scales the runs of the nearest batch along a line through all batches.
absl::StatusOr<ComputeSource> BetweenBatches(const DdpRecordings& recordings,
                                             double batch, const Place& place) {
  std::map<double, Runs> by_batch;
  std::map<double, ComputeParts> parts;
  for (const RecordedDdp& run : recordings.runs) {
    Runs& runs = by_batch[run.batch];
    if (!runs.empty()) continue;
    runs = MostAlike(recordings, run.batch, place);
    parts[run.batch] = MedianParts(runs);
  }
  if (parts.size() < 2) return OneBatchOnly(batch, parts.begin()->first);
  double nearest = parts.begin()->first;
  for (const auto& [size, measured] : parts) {
    if (std::abs(std::log(size / batch)) < std::abs(std::log(nearest / batch)))
      nearest = size;
  }
  ComputeSource source;
  source.runs = by_batch[nearest];
  for (const auto part : kComputeParts) {
    const double there = LineAt(parts, part, nearest);
    source.factors.*part = there > 0 ? LineAt(parts, part, batch) / there : 1;
  }
  source.extrapolations.push_back(
      absl::StrCat("batch ", BatchText(batch),
                   " per rank was not run: computing by a line "
                   "through those that were, ",
                   BatchText(parts.begin()->first), " to ",
                   BatchText(parts.rbegin()->first)));
  return source;
}

std::string WhereFrom(const RecordedDdp& run, const Place& place) {
  const auto [world_size, ranks] = place;
  const std::string measured = absl::StrCat(
      "computing as measured on ", Counted(run.world_size, "rank"),
      run.hosts > 1 ? absl::StrCat(" of ", run.hosts, " hosts") : "");
  if (run.fake) {
    return "computing as measured in one process: the ranks of the backend "
           "fake are simulated, share no cores and are never late";
  }
  if (run.skips_communication) {
    return absl::StrCat(
        measured, " with --skip_communication",
        RanksOnHost(run) == ranks ? ", which share their machine" : "");
  }
  if (run.world_size == world_size && RanksOnHost(run) == ranks)
    return measured;
  if (ranks < world_size && RanksOnHost(run) == ranks)
    return absl::StrCat(measured, ", as many as on each host");
  if (run.world_size == 1) {
    return absl::StrCat(measured, ": each of the ", world_size,
                        " has cores of its own");
  }
  return absl::StrCat(measured,
                      ": more of them are on more machines like that "
                      "one, as many on each");
}

std::vector<StepSample> SimulateRun(const RecordedDdp& run,
                                    const ComputeParts& factors,
                                    const BucketPlan& plan,
                                    const std::vector<ReadyBucket>& buckets,
                                    const std::vector<CostEstimate>& costs) {
  std::vector<StepSample> samples;
  for (const ComputeParts& parts : run.steps) {
    DdpStepTrace trace;
    for (const auto part : kComputeParts) {
      trace.*part = parts.*part * factors.*part;
    }
    // Without communication, the tail is already part of backward.
    if (!run.skips_communication) {
      trace.after_backward_seconds += plan.tail_seconds;
    }
    for (const ReadyBucket& bucket : buckets) {
      trace.buckets.push_back(
          {bucket.bytes, bucket.ready_seconds * trace.backward_seconds});
    }
    const auto times = [&](CostSide side) {
      return SimulateDdpStep(trace,
                             NumbersOf(costs, [side](const CostEstimate& cost) {
                               return SecondsAt(cost, side);
                             }));
    };
    samples.push_back({times(CostSide::kMiddle), times(CostSide::kLow),
                       times(CostSide::kHigh)});
  }
  return samples;
}

// Returns the cost of each bucket's all-reduce.
absl::StatusOr<std::vector<CostEstimate>> BucketCosts(
    const Layout& layout, const std::vector<ReadyBucket>& buckets,
    const NetworkModel& network) {
  const int64_t hosts = layout.hosts();
  std::vector<CostEstimate> costs;
  for (const ReadyBucket& bucket : buckets) {
    ASSIGN_OR_RETURN(
        costs.emplace_back(),
        layout.hierarchical && hosts > 1
            ? network.EstimateHierarchical(bucket.bytes, layout.dp, hosts)
            : network.Estimate("all_reduce", bucket.bytes, layout.dp, hosts));
  }
  return costs;
}

// Adds the extrapolations of a bucket's all-reduce missing from `lines`.
void AddExtrapolations(const Layout& layout, double bytes,
                       const NetworkModel& network,
                       std::vector<std::string>& lines) {
  const int64_t hosts = layout.hosts();
  const auto add = [&](int64_t ranks, int64_t over_hosts) {
    for (std::string& line :
         network.Extrapolations("all_reduce", bytes, ranks, over_hosts)) {
      if (!absl::c_linear_search(lines, line)) lines.push_back(std::move(line));
    }
  };
  if (!layout.hierarchical || hosts == 1) return add(layout.dp, hosts);
  add(layout.dp / hosts, 1);
  add(hosts, hosts);
}

double ExposedSeconds(const std::vector<StepSample>& samples) {
  return Median(NumbersOf(samples, [](const StepSample& sample) {
    return sample.middle.exposed_comm_seconds;
  }));
}

// Describes the cost of all-reduces over several hosts.
std::string LinkLine(const Layout& layout, const NetworkModel& network) {
  const int64_t ranks = layout.hierarchical ? layout.hosts() : layout.dp;
  const std::string how =
      layout.hierarchical
          ? absl::StrCat("all-reduces within each host, then a ring of ", ranks,
                         " hosts")
          : absl::StrCat("all-reduces are a ring of ", ranks,
                         " ranks, host by host");
  const bool measured = network.FindAcrossHosts("all_reduce") != nullptr;
  return absl::StrCat(
      how, "; the cost of the link between hosts is taken from ",
      measured ? "measured all-reduces" : "messages between hosts");
}

// Evaluates a line through the recorded batches; 0 if unknown.
double PeakBytesAt(const DdpRecordings& recordings, double batch) {
  std::map<double, double> peaks;
  for (const RecordedDdp& run : recordings.runs) {
    double& peak = peaks[run.batch];
    peak = std::max(peak, run.peak_bytes);
  }
  if (peaks.count(batch) > 0) return peaks[batch];
  const auto [low, high] = std::make_pair(*peaks.begin(), *peaks.rbegin());
  if (peaks.size() < 2 || low.second == 0 || high.second == 0) return 0;
  const double slope = (high.second - low.second) / (high.first - low.first);
  return std::max(low.second, low.second + slope * (batch - low.first));
}

}  // namespace

absl::StatusOr<ComputeSource> FindCompute(const DdpRecordings& recordings,
                                          double batch, int64_t world_size,
                                          int64_t ranks_per_host) {
  const Place place = {world_size, ranks_per_host > 0
                                       ? std::min(ranks_per_host, world_size)
                                       : world_size};
  ComputeSource source;
  source.runs = MostAlike(recordings, batch, place);
  if (source.runs.empty()) {
    ASSIGN_OR_RETURN(source, BetweenBatches(recordings, batch, place));
  }
  source.assumptions.push_back(WhereFrom(*source.runs[0], place));
  int64_t largest = 0;
  for (const RecordedDdp& run : recordings.runs) {
    if (!run.skips_communication) largest = std::max(largest, run.world_size);
  }
  if (world_size > largest) {
    source.extrapolations.push_back(
        largest == 0 ? "ddp was recorded without communication only"
                     : absl::StrCat("ddp with communication was recorded on "
                                    "no more than ",
                                    Counted(largest, "rank")));
  }
  return source;
}

StepTimes SimulateDdpStep(const DdpStepTrace& trace,
                          absl::Span<const double> all_reduce_seconds) {
  double done = 0;
  for (size_t i = 0; i < trace.buckets.size(); ++i) {
    done =
        std::max(done, trace.buckets[i].ready_seconds) + all_reduce_seconds[i];
  }
  StepTimes times;
  times.exposed_comm_seconds = std::max(0.0, done - trace.backward_seconds);
  times.step_seconds = trace.before_backward_seconds + trace.backward_seconds +
                       times.exposed_comm_seconds +
                       trace.after_backward_seconds;
  return times;
}

absl::StatusOr<SimulatedLayout> SimulateDdpLayout(
    const DdpRecordings& recordings, const Layout& layout,
    const NetworkModel& network) {
  if (recordings.runs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(layout.Name(),
                     ": no run of ddp was recorded; add one: bazel run "
                     "//trainers:ddp -- --nproc=2 --traffic_steps=10 "
                     "--record=FILE"));
  }
  const double batch = static_cast<double>(layout.micro_batch);
  ASSIGN_OR_RETURN(
      ComputeSource source,
      FindCompute(recordings, batch, layout.dp, layout.ranks_per_host));
  const BucketPlan& plan = NearestPlan(recordings.plans, batch, layout.dp);
  std::vector<ReadyBucket> buckets = plan.buckets;
  SimulatedLayout result;
  result.assumptions = std::move(source.assumptions);
  result.extrapolations = std::move(source.extrapolations);
  if (layout.bucket_bytes > 0) {
    buckets = Rebucket(buckets, layout.bucket_bytes);
    if (buckets.size() > plan.buckets.size()) {
      result.extrapolations.push_back(
          "buckets smaller than those recorded: gradients are assumed to "
          "arrive evenly, and tensors to be no larger than a bucket");
    }
  }
  if (plan.broadcast_bytes > 0 && layout.dp > 1) {
    result.assumptions.push_back(absl::StrFormat(
        "the broadcast of %.3g KB of buffers before forward takes as long as "
        "where it was recorded",
        plan.broadcast_bytes * 1e-3));
  }
  ASSIGN_OR_RETURN(const std::vector<CostEstimate> costs,
                   BucketCosts(layout, buckets, network));
  for (const ReadyBucket& bucket : buckets) {
    AddExtrapolations(layout, bucket.bytes, network, result.extrapolations);
  }
  for (const CostEstimate& cost : costs)
    result.conditions.insert(cost.conditions.begin(), cost.conditions.end());
  for (const RecordedDdp* run : source.runs) {
    result.runs.push_back(
        SimulateRun(*run, source.factors, plan, buckets, costs));
  }
  if (layout.hosts() > 1) {
    Layout one_host = layout;
    one_host.ranks_per_host = 0;
    const auto without = BucketCosts(one_host, buckets, network);
    if (without.ok()) {
      result.link_seconds =
          ExposedSeconds(result.runs.front()) -
          ExposedSeconds(SimulateRun(*source.runs.front(), source.factors, plan,
                                     buckets, *without));
    } else if (layout.ranks_per_host == 1) {
      // Every message crosses hosts, and none was measured within a host.
      result.link_seconds = ExposedSeconds(result.runs.front());
    }
    result.assumptions.push_back(LinkLine(layout, network));
  }
  result.waiting = source.runs[0]->fake ? 1 : layout.dp;
  result.peak_bytes = PeakBytesAt(recordings, batch);
  return result;
}

}  // namespace rankwise
