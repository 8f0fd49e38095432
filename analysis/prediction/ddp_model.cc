#include "analysis/prediction/ddp_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "records/record.h"

namespace rankwise {
namespace {

double FlagOr(const RunRecord& run, const char* name, double otherwise) {
  const auto flag = run.flags.find(name);
  double value = 0;
  return flag != run.flags.end() && absl::SimpleAtod(flag->second, &value)
             ? value
             : otherwise;
}

// The Reducer closes a bucket as it reaches so many bytes.
double LimitOfBucket(const RunRecord& run, size_t index) {
  const double cap = FlagOr(run, "bucket_cap_mb", 25);
  const double first = std::min(cap, FlagOr(run, "first_bucket_mb", 1));
  return (index == 0 ? first : cap) * (1 << 20);
}

// All-reduces of up to so many bytes are done in the thread that starts them.
double DirectBytes(const RunRecord& run) {
  const bool direct = run.backend == "gloo" && run.world_size > 1;
  return direct ? FlagOr(run, "direct_all_reduce_bytes", 0) : 0;
}

// The step's buckets, and what is left of its backward without them. Without
// buckets: nothing was all-reduced in backward.
DdpStepTrace TraceOf(const RunRecord& run, const StepRecord& step,
                     const TrafficRecord& traffic) {
  const double end = step.step_seconds - step.optimizer_seconds;
  const double begin = end - step.backward_seconds;
  DdpStepTrace trace;
  trace.before_backward_seconds = begin;
  trace.after_backward_seconds = step.optimizer_seconds;
  double blocked = 0;        // of backward so far, by calls in its own thread
  double all_ended = begin;  // when the last all-reduce was known to be over
  for (const RecordedTransfer& event : traffic.events) {
    const bool in_backward =
        event.start_seconds >= begin && event.start_seconds <= end;
    if (event.op != "all_reduce" || !in_backward) continue;
    const double ready = event.start_seconds - begin - blocked;
    const double bytes = static_cast<double>(event.bytes);
    const double limit = LimitOfBucket(run, trace.buckets.size());
    trace.buckets.push_back({bytes, ready, std::max(0.0, bytes - limit)});
    trace.backward_seconds = ready;
    const double ended =
        std::isnan(event.end_seconds) ? end : event.end_seconds;
    all_ended = std::max(all_ended, ended);
    if (bytes <= DirectBytes(run)) blocked += ended - event.start_seconds;
  }
  // Gradients go back from their buckets: not communication.
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

}  // namespace

DdpStepTimes SimulateDdpStep(
    const DdpStepTrace& trace,
    const std::function<double(double bytes)>& all_reduce_seconds) {
  double done = 0;
  for (const ReadyBucket& bucket : trace.buckets) {
    done =
        std::max(done, bucket.ready_seconds) + all_reduce_seconds(bucket.bytes);
  }
  DdpStepTimes times;
  times.exposed_comm_seconds = std::max(0.0, done - trace.backward_seconds);
  times.step_seconds = trace.before_backward_seconds + trace.backward_seconds +
                       times.exposed_comm_seconds +
                       trace.after_backward_seconds;
  return times;
}

absl::StatusOr<std::vector<DdpStepTrace>> DdpTraces(
    const RunTrace& run, const ThroughputConfig& config) {
  if (absl::Status status = CheckRun(run); !status.ok()) return status;
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
  double before = 0;  // when the bucket before was ready
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

}  // namespace rankwise
