#include "trainers/observe/step_trace.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "ATen/ops/tensor.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/device/device_event.h"
#include "parallel/launch/network.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

RecordedTransfer ToTransfer(const CommEvent& event, int64_t start_ns) {
  const auto since_start = [start_ns](int64_t ns) {
    return ns == 0 ? std::numeric_limits<double>::quiet_NaN()
                   : Seconds(ns - start_ns);
  };
  return {.op = event.op,
          .bytes = event.bytes,
          .count = event.count,
          .dtype = event.dtype,
          .peer = event.peer,
          .ranks = {event.ranks.begin(), event.ranks.end()},
          .start_seconds = since_start(event.start_ns),
          .end_seconds = since_start(event.end_ns),
          .wait_start_seconds = since_start(event.wait_start_ns),
          .group = event.group};
}

// An end may be observed after the step is over: it is drawn within the step.
TraceSpan ToTraceSpan(const CommEvent& event, double step_end_seconds,
                      bool of_device) {
  TraceSpan span;
  span.lane = kCommunicationLane;
  span.name = event.op;
  span.category = "communication";
  span.start_seconds = Seconds(event.start_ns);
  span.end_seconds = std::max(
      span.start_seconds, std::min(Seconds(event.end_ns), step_end_seconds));
  span.nests = false;
  span.args = {{"bytes", event.bytes}};
  if (!event.dtype.empty()) span.args["dtype"] = event.dtype;
  if (event.peer >= 0) span.args["peer"] = event.peer;
  if (!event.ranks.empty()) span.args["ranks"] = event.ranks;
  if (of_device) span.args["start"] = "launched by the host";
  if (event.end_ns == 0) span.args["end"] = "not seen by the host";
  return span;
}

// Returns the earliest start on any rank.
absl::StatusOr<double> FirstStart(const std::vector<TraceSpan>& spans,
                                  const Worker& worker) {
  double first = std::numeric_limits<double>::max();
  for (const TraceSpan& span : spans)
    first = std::min(first, span.start_seconds);
  if (worker.comm == nullptr) return first;
  at::Tensor all = at::tensor({first}, at::kDouble).to(worker.device);
  RETURN_IF_ERROR(worker.comm->AllReduce(all, ReduceOp::kMin));
  return all.item<double>();
}

}  // namespace

bool StepTraffic::Begin() {
  ++seen_;
  const int64_t number = seen_ - kWarmUpSteps;
  watching_ =
      comm_ != nullptr && number > 0 && number <= std::max(recorded_, traced_);
  if (watching_) comm_->StartTraffic();
  return watching_;
}

StepCommunication StepTraffic::End(const StepRecord& step, int64_t start_ns) {
  StepCommunication seen;
  if (!std::exchange(watching_, false)) return seen;
  seen.events = comm_->TakeTraffic();
  if (seen_ - kWarmUpSteps > recorded_) return seen;
  TrafficRecord& record = seen.record.emplace();
  record.rank = step.rank;
  record.step = step.step;
  for (const CommEvent& event : seen.events)
    record.events.push_back(ToTransfer(event, start_ns));
  return seen;
}

absl::Status StepTrace::Check(const TraceConfig& config, int64_t steps) {
  if (config.file.empty() || steps > StepTraffic::kWarmUpSteps)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--trace=", config.file, ": begins with the third step, and the run has ",
      steps, "; train for more (--max_steps, --epochs, --train_size)"));
}

StepTrace::StepTrace(const TraceConfig& config, const Worker& worker)
    : config_(config),
      worker_(worker),
      clock_(worker.comm),
      last_(StepTraffic::kWarmUpSteps + config.steps),
      wants_operators_(config.operators) {}

bool StepTrace::Follows(int64_t seen) const {
  return seen > StepTraffic::kWarmUpSteps && seen <= last_;
}

bool StepTrace::Begin() {
  const bool follows = Follows(++seen_);
  if (follows && wants_operators_ && !operators_.has_value()) StartOperators();
  return follows;
}

void StepTrace::End(int64_t step, const StepClock& clock,
                    absl::Span<const CommEvent> communication,
                    StepOutcome& outcome) {
  const bool follows = Follows(seen_);
  if (follows || Follows(seen_ + 1)) SynchronizeDevice(worker_.device);
  if (!follows) return;
  if (first_step_ == 0) first_step_ = step;
  last_step_ = step;
  windows_.push_back({Seconds(clock.start_ns()), SteadySeconds()});
  AddPhases(step, clock);
  const double end_seconds = clock.Phases().back().end_seconds;
  for (const CommEvent& event : communication)
    spans_.push_back(ToTraceSpan(event, end_seconds, !worker_.device.is_cpu()));
  absl::c_move(outcome.trace, std::back_inserter(spans_));
  if (outcome.predicted_trace.has_value())
    predicted_ = std::move(outcome.predicted_trace);
  if (seen_ == last_) StopOperators();
}

void StepTrace::AddPhases(int64_t step, const StepClock& clock) {
  const std::vector<PhaseSpan> phases = clock.Phases();
  const auto add = [this](const char* lane, const std::string& name,
                          const char* category, double start, double end) {
    TraceSpan& span = spans_.emplace_back();
    span.lane = lane;
    span.name = name;
    span.category = category;
    span.start_seconds = start;
    span.end_seconds = end;
  };
  add(kComputeLane, absl::StrCat("step ", step), "step",
      phases.front().start_seconds, phases.back().end_seconds);
  spans_.back().args = {{"step", step}};
  for (const PhaseSpan& phase : phases) {
    if (PhaseName(phase.phase) == nullptr) continue;
    add(phase.phase == Phase::kDataWait ? kDataLane : kComputeLane,
        PhaseName(phase.phase), "phase", phase.start_seconds,
        phase.end_seconds);
  }
}

void StepTrace::StartOperators() {
  try {
    operators_.emplace().Start(!worker_.device.is_cpu());
  } catch (const std::exception& error) {
    GiveUpOperators(error);
  }
}

// Other work, such as an evaluation, may have run between traced steps.
void StepTrace::StopOperators() {
  if (!operators_.has_value()) return;
  try {
    for (TraceSpan& span : operators_->Stop()) {
      if (Followed(span)) spans_.push_back(std::move(span));
    }
    operators_.reset();
  } catch (const std::exception& error) {
    GiveUpOperators(error);
  }
}

bool StepTrace::Followed(const TraceSpan& span) const {
  return absl::c_any_of(windows_, [&span](const Window& window) {
    return span.start_seconds >= window.start_seconds &&
           span.start_seconds < window.end_seconds;
  });
}

void StepTrace::GiveUpOperators(const std::exception& error) {
  operators_.reset();
  wants_operators_ = false;
  std::fprintf(
      stderr,
      "warning: rank %d: --trace_ops: %s; continuing without operators\n",
      worker_.env.rank, PlainMessage(error).c_str());
}

TraceProcess StepTrace::TakeProcess() {
  TraceProcess process;
  process.number = worker_.env.rank;
  process.name = absl::StrCat("rank ", worker_.env.rank, " · ", HostName());
  process.lanes = {kComputeLane, kCommunicationLane, kDataLane};
  process.args = {{"clock_error_us", clock_.error_seconds() * 1e6}};
  process.spans = std::exchange(spans_, {});
  for (TraceSpan& span : process.spans) {
    span.start_seconds = clock_.RootTime(span.start_seconds);
    span.end_seconds = clock_.RootTime(span.end_seconds);
  }
  return process;
}

absl::StatusOr<std::string> StepTrace::Write() {
  written_ = true;
  if (first_step_ == 0) {  // on all ranks or none: all take the same steps
    return "no trace is written: tracing begins with the third step after a "
           "start, and the run ended before that";
  }
  StopOperators();  // if the run ended before the last traced step
  const TraceProcess mine = TakeProcess();
  ASSIGN_OR_RETURN(double origin, FirstStart(mine.spans, worker_));
  std::vector<std::string> texts =
      GatherText(worker_.comm, RenderProcess(mine, origin));
  if (predicted_.has_value()) {
    predicted_->number = worker_.env.world_size;
    texts.push_back(RenderProcess(*predicted_, origin));
  }
  if (worker_.is_first()) {
    file_status_ = WriteTraceFile(config_.file, texts);
    if (!file_status_.ok()) {
      return absl::StrCat("warning: no trace: ", file_status_.message());
    }
  }
  return absl::StrCat("trace of steps ", first_step_, " to ", last_step_,
                      ", for ui.perfetto.dev: ", config_.file);
}

}  // namespace rankwise
