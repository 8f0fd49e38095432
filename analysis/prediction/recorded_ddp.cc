#include "analysis/prediction/recorded_ddp.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/cell.h"
#include "analysis/prediction/recorded_runs.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

ComputeParts PartsOf(const StepRecord& step) {
  ComputeParts parts;
  parts.before_backward_seconds =
      step.step_seconds - step.backward_seconds - step.optimizer_seconds;
  parts.backward_seconds = step.backward_seconds - step.exposed_comm_seconds;
  parts.after_backward_seconds = step.optimizer_seconds;
  return parts;
}

RecordedDdp Collect(const RunTrace& run, const ThroughputConfig& config) {
  RecordedDdp recorded;
  recorded.source = run.source;
  recorded.world_size = run.ranks[0].run.world_size;
  recorded.batch = ExamplesPerStep(run, config);
  recorded.skips_communication = SkipsCommunication(run);
  recorded.fake = IsFake(run);
  const absl::StatusOr<Throughput> throughput = MeasureThroughput(run, config);
  if (throughput.ok()) recorded.step_seconds = throughput->step_seconds;
  for (const RankTrace& rank : run.ranks) {
    recorded.peak_bytes = std::max(recorded.peak_bytes, PeakBytes(rank));
    if (recorded.fake && rank.run.rank > 0) continue;  // a mirror image
    for (size_t i = config.warmup_steps; i < rank.steps.size(); ++i) {
      recorded.steps.push_back(PartsOf(rank.steps[i]));
    }
  }
  return recorded;
}

// The same number of buckets as in most of the steps, that is, as in the last.
BucketPlan PlanOf(const std::vector<DdpStepTrace>& traces) {
  BucketPlan plan;
  const size_t count = traces.back().buckets.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<double> shares;
    for (const DdpStepTrace& trace : traces) {
      if (trace.buckets.size() != count || !(trace.backward_seconds > 0))
        continue;
      shares.push_back(trace.buckets[i].ready_seconds / trace.backward_seconds);
    }
    const double share = shares.empty() ? 1 : Median(shares);
    ReadyBucket bucket = traces.back().buckets[i];
    bucket.ready_seconds = share;
    plan.buckets.push_back(bucket);
  }
  return plan;
}

// Of the traced steps, what they had after backward beyond the optimizer.
double TailOf(const RunTrace& run, const std::vector<DdpStepTrace>& traces) {
  std::vector<double> after, optimizer;
  for (const DdpStepTrace& trace : traces) {
    after.push_back(trace.after_backward_seconds);
  }
  for (const RankTrace& rank : run.ranks) {
    for (const TrafficRecord& traffic : rank.traffic) {
      for (const StepRecord& step : rank.steps) {
        if (step.step == traffic.step)
          optimizer.push_back(step.optimizer_seconds);
      }
    }
  }
  if (optimizer.empty()) return 0;
  return std::max(0.0, Median(after) - Median(optimizer));
}

double BroadcastBytes(const RankTrace& rank) {
  double bytes = 0;
  if (rank.traffic.empty()) return bytes;
  for (const RecordedTransfer& event : rank.traffic.back().events) {
    if (event.op == "broadcast") bytes += static_cast<double>(event.bytes);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<DdpRecordings> CollectDdp(absl::Span<const RunTrace* const> runs,
                                         const ThroughputConfig& config) {
  DdpRecordings recordings;
  absl::Status no_traffic;
  for (const RunTrace* run : runs) {
    if (run->ranks[0].run.binary != "ddp") continue;
    recordings.runs.push_back(Collect(*run, config));
    if (SkipsCommunication(*run)) continue;
    const absl::StatusOr<std::vector<DdpStepTrace>> traces =
        DdpTraces(*run, config);
    if (!traces.ok()) {
      no_traffic = traces.status();
      continue;
    }
    BucketPlan plan = PlanOf(*traces);
    plan.world_size = recordings.runs.back().world_size;
    plan.batch = recordings.runs.back().batch;
    plan.tail_seconds = TailOf(*run, *traces);
    plan.broadcast_bytes = BroadcastBytes(run->ranks[0]);
    recordings.plans.push_back(std::move(plan));
  }
  if (recordings.plans.empty() && !recordings.runs.empty()) {
    if (!no_traffic.ok()) return no_traffic;
    return absl::FailedPreconditionError(
        absl::StrCat(recordings.runs[0].source,
                     ": all runs of ddp are with --skip_communication; run one "
                     "without, and with --traffic_steps=10"));
  }
  return recordings;
}

const BucketPlan& NearestPlan(absl::Span<const BucketPlan> plans, double batch,
                              int64_t world_size) {
  const auto distance = [&](const BucketPlan& plan) {
    const bool above = plan.world_size > world_size;
    return std::make_tuple(std::abs(std::log(plan.batch / batch)), above,
                           above ? plan.world_size : -plan.world_size);
  };
  return *std::min_element(plans.begin(), plans.end(),
                           [&](const BucketPlan& a, const BucketPlan& b) {
                             return distance(a) < distance(b);
                           });
}

}  // namespace rankwise
