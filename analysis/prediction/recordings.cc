#include "analysis/prediction/recordings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "records/record.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Flags that define the training; equal in all runs.
constexpr const char* kWork[] = {
    "model",     "model_size",      "depth",    "width",     "tied_head",
    "dataset",   "sequence_length", "dropout",  "precision", "optimizer",
    "recompute", "clip_grad_norm",  "momentum", "tf32",      "sync_batch_norm"};
// Flags that define ddp's communication; equal in all of its runs.
constexpr const char* kDdp[] = {
    "ddp",       "bucket_cap_mb",          "first_bucket_mb", "last_bucket_mb",
    "comm_hook", "find_unused_parameters", "all_reduce"};

absl::Status Differ(const std::string& what, const RunTrace& a,
                    const std::string& value_a, const RunTrace& b,
                    const std::string& value_b) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the runs differ: ", what, " is \"", value_a, "\" in ", a.source,
      " and \"", value_b, "\" in ", b.source,
      "; predict from a folder in which only the world size, the batch and the "
      "pipelines' shapes differ"));
}

// Compares the runs that have the flag.
absl::Status CheckFlag(const std::vector<const RunTrace*>& runs,
                       const char* flag) {
  const RunTrace* first = nullptr;
  for (const RunTrace* run : runs) {
    const RunRecord& record = run->ranks[0].run;
    if (record.flags.count(flag) == 0) continue;
    if (first == nullptr) first = run;
    const std::string expected = FlagOf(first->ranks[0].run, flag);
    if (FlagOf(record, flag) == expected) continue;
    return Differ(absl::StrCat("--", flag), *first, expected, *run,
                  FlagOf(record, flag));
  }
  return absl::OkStatus();
}

absl::Status CheckAlike(const std::vector<const RunTrace*>& runs) {
  for (const char* flag : kWork) RETURN_IF_ERROR(CheckFlag(runs, flag));
  std::vector<const RunTrace*> ddp = runs;
  std::erase_if(ddp, [](const RunTrace* run) {
    return run->ranks[0].run.binary != "ddp";
  });
  for (const char* flag : kDdp) RETURN_IF_ERROR(CheckFlag(ddp, flag));
  for (const RunTrace* run : runs) {
    const RunRecord& a = runs[0]->ranks[0].run;
    const RunRecord& b = run->ranks[0].run;
    const std::array<std::string, 3> properties[] = {
        {"threads per rank", absl::StrCat(a.threads_per_rank),
         absl::StrCat(b.threads_per_rank)},
        {"the backend", a.backend, b.backend},
        {"the device", DeviceKind(a), DeviceKind(b)},
        {"the CPU", a.host.cpu_model, b.host.cpu_model}};
    for (const auto& [what, of_first, of_run] : properties) {
      if (of_first != of_run) {
        return Differ(what, *runs[0], of_first, *run, of_run);
      }
    }
  }
  return absl::OkStatus();
}

// Returns the bytes at which the Reducer closes a bucket.
double LimitOfBucket(const RunRecord& run, size_t index) {
  const double cap = NumberFlagOf(run, "bucket_cap_mb", 25);
  const double first = std::min(cap, NumberFlagOf(run, "first_bucket_mb", 1));
  return (index == 0 ? first : cap) * (1 << 20);
}

// Whether the event reduces a bucket. A hierarchical reduction begins with a
// reduce-scatter of the whole bucket (parallel/comm/hierarchical.h).
bool ReducesBucket(const RecordedTransfer& event) {
  if (absl::EndsWith(event.group, "_within"))
    return event.op == "reduce_scatter";
  return event.op == "all_reduce" && !absl::EndsWith(event.group, "_across");
}

// Returns the step's buckets, and the rest of its backward. Without buckets,
// nothing was all-reduced in backward.
DdpStepTrace TraceOf(const RunRecord& run, const StepRecord& step,
                     const TrafficRecord& traffic) {
  const double end = step.step_seconds - step.optimizer_seconds;
  const double begin = end - step.backward_seconds;
  DdpStepTrace trace;
  trace.before_backward_seconds = begin;
  trace.after_backward_seconds = step.optimizer_seconds;
  double all_ended = begin;  // end of the last all-reduce, as far as observed
  for (const RecordedTransfer& event : traffic.events) {
    const bool in_backward =
        event.start_seconds >= begin && event.start_seconds <= end;
    if (!ReducesBucket(event) || !in_backward) continue;
    const double ready = event.start_seconds - begin;
    const double bytes = static_cast<double>(event.bytes);
    const double limit = LimitOfBucket(run, trace.buckets.size());
    trace.buckets.push_back({bytes, ready, std::max(0.0, bytes - limit)});
    trace.backward_seconds = ready;
    all_ended = std::max(
        all_ended, std::isnan(event.end_seconds) ? end : event.end_seconds);
  }
  // Copying gradients out of the buckets is not communication.
  if (!trace.buckets.empty()) {
    trace.after_backward_seconds += std::max(0.0, end - all_ended);
  }
  return trace;
}

std::vector<DdpStepTrace> TracesFrom(const RunTrace& run, int64_t first_step) {
  std::vector<DdpStepTrace> traces;
  for (const RankTrace& rank : run.ranks) {
    std::map<int64_t, const StepRecord*> steps;
    for (const StepRecord& step : rank.steps) steps[step.step] = &step;
    for (const TrafficRecord& traffic : rank.traffic) {
      const auto step = steps.find(traffic.step);
      if (step == steps.end() || traffic.step < first_step) continue;
      DdpStepTrace trace = TraceOf(rank.run, *step->second, traffic);
      if (!trace.buckets.empty()) traces.push_back(std::move(trace));
    }
  }
  return traces;
}

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
  recorded.hosts = CountHosts(run);
  recorded.batch = ExamplesPerStep(run, config);
  recorded.skips_communication = SkipsCommunication(run.ranks[0].run);
  recorded.hierarchical = IsHierarchical(run.ranks[0].run);
  recorded.fake = IsFake(run);
  const absl::StatusOr<Throughput> throughput = MeasureThroughput(run, config);
  if (throughput.ok()) recorded.step_seconds = throughput->step_seconds;
  for (const RankTrace& rank : run.ranks) {
    recorded.peak_bytes = std::max(recorded.peak_bytes, PeakBytes(rank));
    if (recorded.fake && rank.run.rank > 0) continue;  // mirrored rank
    for (const StepRecord& step : MeasuredSteps(rank, config)) {
      recorded.steps.push_back(PartsOf(step));
    }
  }
  return recorded;
}

// Uses the last step's number of buckets, which most steps have.
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

// Returns the time after backward beyond the optimizer, of the traced steps.
double TailOf(const RunTrace& run, const std::vector<DdpStepTrace>& traces) {
  std::vector<double> optimizer;
  for (const RankTrace& rank : run.ranks) {
    for (const TrafficRecord& traffic : rank.traffic) {
      for (const StepRecord& step : rank.steps) {
        if (step.step == traffic.step)
          optimizer.push_back(step.optimizer_seconds);
      }
    }
  }
  if (optimizer.empty()) return 0;
  const std::vector<double> after =
      NumbersOf(traces, &DdpStepTrace::after_backward_seconds);
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

bool IsPredictable(const RunRecord& run) {
  return run.binary == "ddp" || run.binary == "model_parallel" ||
         run.binary == "pipeline";
}

bool IsHierarchical(const RunRecord& run) {
  return FlagOf(run, "all_reduce") == "hierarchical";
}

bool IsFake(const RunTrace& run) { return run.ranks[0].run.backend == "fake"; }

// Every mirrored rank copies the recorded rank's steps: with more ranks, the
// run stays incomplete instead of exhausting memory.
constexpr int64_t kMostImages = 1 << 14;

RunTrace MirrorFakeRanks(RunTrace run) {
  if (run.ranks.size() != 1 || !IsFake(run)) return run;
  const int64_t world_size = run.ranks[0].run.world_size;
  if (world_size > kMostImages) return run;
  for (int64_t rank = 1; rank < world_size; ++rank) {
    RankTrace image;
    image.run = run.ranks[0].run;
    image.run.rank = rank;
    image.steps = run.ranks[0].steps;
    for (StepRecord& step : image.steps) step.rank = rank;
    run.ranks.push_back(std::move(image));
  }
  return run;
}

absl::StatusOr<std::vector<RunTrace>> LoadRecordings(const std::string& path) {
  absl::StatusOr<std::vector<RunTrace>> runs = LoadRuns(path);
  if (!runs.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--records: ", runs.status().message()));
  }
  for (const std::string& line : TornLines(*runs)) {
    std::cerr << "Left out: " << line << ".\n";
  }
  for (RunTrace& run : *runs) run = MirrorFakeRanks(std::move(run));
  return runs;
}

double ExamplesPerStep(const RunTrace& run, const ThroughputConfig& config) {
  return Median(
      NumbersOf(MeasuredSteps(run.ranks[0], config), &StepRecord::examples));
}

absl::StatusOr<std::vector<const RunTrace*>> PredictableRuns(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config) {
  std::vector<const RunTrace*> usable, captured;
  std::vector<std::string> left_out;  // discarded: GroupIntoCells reports them
  for (const MeasuredRun& measured : MeasureRuns(runs, config, &left_out)) {
    const RunTrace& run = runs[measured.index];
    if (!IsPredictable(run.ranks[0].run)) continue;
    (measured.throughput.captured ? captured : usable).push_back(&run);
  }
  if (usable.empty() && !captured.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(captured[0]->source,
                     ": its steps were captured as graphs, which do not "
                     "separate backward from "
                     "communication; record a run with --cuda_graph=false"));
  }
  RETURN_IF_ERROR(CheckAlike(usable));
  return usable;
}

absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config) {
  RETURN_IF_ERROR(CheckRun(run));
  const std::vector<StepRecord>& steps = run.ranks[0].steps;
  const int64_t first_step = steps.empty() ? 1 : steps[0].step;
  std::vector<DdpStepTrace> traces =
      TracesFrom(run, first_step + config.warmup_steps);
  if (traces.empty()) traces = TracesFrom(run, first_step);
  if (!traces.empty()) return traces;
  return absl::FailedPreconditionError(
      absl::StrCat(run.source,
                   ": no step of ddp has its all-reduces recorded; run the "
                   "trainer with --traffic_steps=10"));
}

std::vector<ReadyBucket> Rebucket(absl::Span<const ReadyBucket> buckets,
                                  double bucket_bytes) {
  std::vector<ReadyBucket> result;
  ReadyBucket open;
  double before = 0;  // when the previous bucket was ready
  for (const ReadyBucket& bucket : buckets) {
    const double smallest = std::max(bucket.tensor_bytes, bucket_bytes);
    const double pieces =
        std::max(1.0, bucket.tensor_bytes > bucket_bytes
                          ? std::floor(bucket.bytes / smallest)
                          : std::ceil(bucket.bytes / smallest));
    for (double piece = 1; piece <= pieces; ++piece) {
      open.bytes += bucket.bytes / pieces;
      open.tensor_bytes = std::max(open.tensor_bytes, bucket.tensor_bytes);
      open.ready_seconds =
          before + (bucket.ready_seconds - before) * piece / pieces;
      if (open.bytes < bucket_bytes && pieces == 1) continue;
      result.push_back(open);
      open = {};
    }
    before = bucket.ready_seconds;
  }
  if (open.bytes > 0) result.push_back(open);
  return result;
}

absl::StatusOr<DdpRecordings> CollectDdp(absl::Span<const RunTrace* const> runs,
                                         const ThroughputConfig& config) {
  DdpRecordings recordings;
  absl::Status no_traffic;
  for (const RunTrace* run : runs) {
    if (run->ranks[0].run.binary != "ddp") continue;
    recordings.runs.push_back(Collect(*run, config));
    if (recordings.runs.back().skips_communication) continue;
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
