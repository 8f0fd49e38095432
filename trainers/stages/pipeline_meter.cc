#include "trainers/stages/pipeline_meter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "parallel/clock/clock_sync.h"
#include "parallel/comm/gather.h"
#include "parallel/pipeline/engine/transport.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kFirstPrediction = 3;  // after this full step
constexpr size_t kRecentSteps = 10;
constexpr size_t kKinds = 4;  // of computation
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values that ranks exchange for the summary; the first four are medians.
enum Column : size_t {
  kSeconds,
  kSpan,
  kBusy,
  kWait,
  kActivations,
  kTransfer,
  kSent
};

double LongestStep(const std::vector<std::vector<double>>& ranks) {
  double seconds = 0;
  for (const std::vector<double>& row : ranks)
    seconds = std::max(seconds, row[kSeconds]);
  return seconds;
}

int64_t CountSends(const std::vector<Span>& spans) {
  return absl::c_count_if(
      spans, [](const Span& span) { return IsSend(span.action.kind); });
}

// Returns the part of the waits in which the messages were in flight.
double ExposedTransfer(const std::vector<MessageWait>& waits,
                       const LinkCosts& link) {
  double seconds = 0;
  for (const MessageWait& wait : waits) {
    seconds += std::min(wait.seconds.Wait(),
                        link.alpha_seconds + static_cast<double>(wait.bytes) *
                                                 link.beta_seconds_per_byte);
  }
  return seconds;
}

}  // namespace

PipelineMeter::PipelineMeter(const Schedule& schedule,
                             std::vector<double> output_bytes, LinkCosts link,
                             const Worker& worker, std::vector<int> ranks)
    : schedule_(&schedule),
      output_bytes_(std::move(output_bytes)),
      link_(link),
      worker_(worker),
      ranks_(std::move(ranks)),
      sums_(ranks_.size()) {}

bool PipelineMeter::IsDue(int64_t full_steps) {
  int64_t due = kFirstPrediction;
  while (due < full_steps) due *= 2;
  return due == full_steps;
}

// Returns all ranks' rows, of equal length; `rows` are this process's.
absl::StatusOr<PipelineMeter::Table> PipelineMeter::GatherAll(
    Table rows) const {
  if (worker_.env.world_size == 1) return rows;
  ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> all,
      GatherToHost(at::tensor(rows.front(), at::kDouble), worker_.comm));
  rows.clear();
  for (const at::Tensor& row : all) {
    const double* const first = row.const_data_ptr<double>();
    rows.emplace_back(first, first + row.numel());
  }
  return rows;
}

int PipelineMeter::Pipeline() const {
  int pipeline = 0;
  for (const MeshAxis& axis : worker_.layout.axes()) {
    if (axis.name == "pp") continue;
    pipeline = pipeline * axis.size + worker_.coordinate(axis.name);
  }
  return pipeline;
}

std::vector<int> PipelineMeter::RowsOf(int rank_of_job) const {
  return in_one_process() ? ranks_ : worker_.layout.Line("pp", rank_of_job);
}

ScheduleRecord PipelineMeter::RecordOf(int64_t step, const Schedule& schedule,
                                       int rank,
                                       const ExecutorStep& measured) const {
  ScheduleRecord record;
  record.rank = worker_.env.rank;
  record.step = step;
  record.schedule = schedule.name;
  record.pipeline_rank = rank;
  record.pipeline_size = schedule.num_ranks();
  record.replica = Pipeline();
  record.replicas = std::max(1, worker_.env.world_size / worker_.size("pp"));
  record.stages = schedule.num_stages();
  record.micro_batches = schedule.num_micro_batches;
  record.schedule_seconds = measured.end_seconds - measured.start_seconds;
  const Extent extent = ExtentOf(measured.spans);
  record.span_seconds = extent.seconds();
  record.busy_seconds = extent.busy_seconds();
  record.wait_seconds = measured.wait_seconds();
  record.exposed_transfer_seconds = ExposedTransfer(measured.waits, link_);
  // A sender observes the end of a message long after its arrival.
  record.transfer_seconds =
      static_cast<double>(CountSends(measured.spans)) * link_.alpha_seconds +
      static_cast<double>(measured.sent_bytes) * link_.beta_seconds_per_byte;
  if (in_one_process() && worker_.device.is_cpu()) {
    // Slots take turns in one thread: a rank waits while it does not compute,
    // and nothing else happens during a copy.
    record.wait_seconds = record.schedule_seconds - record.busy_seconds;
    record.exposed_transfer_seconds =
        std::min(record.transfer_seconds, record.wait_seconds);
  }
  record.sent_bytes = measured.sent_bytes;
  record.received_bytes = measured.received_bytes;
  record.peak_activations = measured.peak_activations;
  record.predicted_seconds = record.predicted_span_bubble =
      record.predicted_wall_bubble = kNaN;
  return record;
}

absl::StatusOr<std::vector<ScheduleRecord>> PipelineMeter::Add(
    int64_t step, const Schedule& schedule,
    const std::vector<ExecutorStep>& measured, bool exchange_costs) {
  std::vector<ScheduleRecord> records;
  for (size_t i = 0; i < ranks_.size(); ++i)
    records.push_back(RecordOf(step, schedule, ranks_[i], measured[i]));
  if (!IsFull(schedule)) return records;
  const bool warms_up = !std::exchange(warmed_up_, true);
  FullStep full{step, {}};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ScheduleRecord& record = records[i];
    if (predicted_.has_value()) {
      record.predicted_seconds = predicted_->wall_seconds;
      record.predicted_span_bubble = predicted_->span;
      record.predicted_wall_bubble = predicted_->wall;
    }
    RankSums& sums = sums_[i];
    sums.sent_bytes = static_cast<double>(record.sent_bytes);
    sums.transfer_seconds = record.transfer_seconds;
    sums.peak_activations =
        std::max(sums.peak_activations, measured[i].peak_activations);
    full.spans.push_back(measured[i].spans);
    if (warms_up) continue;
    sums.seconds[kSeconds].push_back(record.schedule_seconds);
    sums.seconds[kSpan].push_back(record.span_seconds);
    sums.seconds[kBusy].push_back(record.busy_seconds);
    sums.seconds[kWait].push_back(record.wait_seconds);
  }
  if (!warms_up) recent_.push_back(std::move(full));
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  if (exchange_costs) {
    RETURN_IF_ERROR(PredictAnew());
  }
  return records;
}

std::vector<double> PipelineMeter::MedianCosts() const {
  const size_t stages = output_bytes_.size();
  std::vector<std::vector<double>> samples(stages * kKinds);
  const auto add = [&](const Span& span) {
    if (!IsCompute(span.action.kind)) return;
    samples[static_cast<size_t>(span.action.stage) * kKinds +
            static_cast<size_t>(span.action.kind)]
        .push_back(span.end_seconds - span.start_seconds);
  };
  for (const FullStep& step : recent_) {
    for (const std::vector<Span>& spans : step.spans)
      absl::c_for_each(spans, add);
  }
  std::vector<double> medians;
  for (std::vector<double>& values : samples)
    medians.push_back(Median(std::move(values)));
  medians.insert(medians.end(),
                 {link_.alpha_seconds, link_.beta_seconds_per_byte});
  return medians;
}

absl::StatusOr<SimulationCosts> PipelineMeter::ExchangeCosts() const {
  ASSIGN_OR_RETURN(Table all, GatherAll({MedianCosts()}));
  const auto cost = [&](size_t stage, ActionKind kind) {
    std::vector<double> replicas;
    for (const std::vector<double>& medians : all) {
      const double value = medians[stage * kKinds + static_cast<size_t>(kind)];
      if (!std::isnan(value)) replicas.push_back(value);
    }
    const double median = Median(replicas);
    return std::isnan(median) ? 0 : median;  // not part of this schedule
  };
  SimulationCosts costs;
  // Each pipeline measured its own link; all use the first rank's.
  const std::vector<double>& first = all.front();
  costs.link = {first[first.size() - 2], first.back()};
  for (size_t stage = 0; stage < output_bytes_.size(); ++stage) {
    StageCosts stage_costs;
    stage_costs.forward_seconds = cost(stage, ActionKind::kForward);
    stage_costs.backward_seconds = cost(stage, ActionKind::kBackward);
    stage_costs.input_grad_seconds = cost(stage, ActionKind::kInputGrad);
    stage_costs.weight_grad_seconds = cost(stage, ActionKind::kWeightGrad);
    stage_costs.output_bytes = output_bytes_[stage];
    costs.stages.push_back(stage_costs);
  }
  return costs;
}

absl::StatusOr<Timeline> PipelineMeter::Predict() const {
  ASSIGN_OR_RETURN(const SimulationCosts costs, ExchangeCosts());
  return Simulate(*schedule_, costs);
}

absl::Status PipelineMeter::PredictAnew() {
  ASSIGN_OR_RETURN(costs_, ExchangeCosts());
  ASSIGN_OR_RETURN(prediction_, Simulate(*schedule_, costs_));
  predicted_ = MeasureBubbles(prediction_);
  return absl::OkStatus();
}

absl::Status PipelineMeter::Follow(const Schedule& schedule) {
  if (IsFull(schedule)) return absl::OkStatus();
  schedule_ = &schedule;
  recent_.clear();
  sums_.assign(ranks_.size(), {});
  ASSIGN_OR_RETURN(prediction_, Simulate(*schedule_, costs_));
  predicted_ = MeasureBubbles(prediction_);
  return absl::OkStatus();
}

std::vector<double> PipelineMeter::SummaryOf(size_t index) const {
  const RankSums& sums = sums_[index];
  std::vector<double> row;
  for (const std::vector<double>& steps : sums.seconds)
    row.push_back(Median(steps));
  row.insert(row.end(), {static_cast<double>(sums.peak_activations),
                         sums.transfer_seconds, sums.sent_bytes});
  return row;
}

absl::StatusOr<std::string> PipelineMeter::Summary() {
  if (recent_.empty()) {
    return std::string("too few full steps to report how busy the stages were");
  }
  // Predict with the costs of the last steps.
  RETURN_IF_ERROR(PredictAnew());
  Table rows;
  for (size_t i = 0; i < ranks_.size(); ++i) rows.push_back(SummaryOf(i));
  ASSIGN_OR_RETURN(Table all, GatherAll(std::move(rows)));
  // Replicas have equal stages: show the first replica's.
  Table first;
  for (int row : RowsOf(/*rank_of_job=*/0))
    first.push_back(all[static_cast<size_t>(row)]);
  return absl::StrCat(RankTable(first), BubbleLines(first));
}

std::string PipelineMeter::RankTable(const Table& ranks) const {
  const double seconds = LongestStep(ranks);
  std::string text = absl::StrFormat(
      "%s, ranks %d, micro-batches %d; medians over %d steps\n"
      "  rank  stages    busy ms   idle ms  utilisation  waiting ms  "
      "transfer ms  sent MB  activations kept\n",
      schedule_->name, ranks.size(), schedule_->num_micro_batches,
      sums_.front().seconds[kSeconds].size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double>& row = ranks[rank];
    absl::StrAppendFormat(
        &text,
        "  %4d  %-8s %8.2f  %8.2f  %9.1f %%  %10.2f  %11.2f  %7.2f  %16.0f\n",
        rank, absl::StrJoin(schedule_->StagesOf(static_cast<int>(rank)), ","),
        row[kBusy] * 1e3, (seconds - row[kBusy]) * 1e3,
        100 * (row[kBusy] / seconds), row[kWait] * 1e3, row[kTransfer] * 1e3,
        row[kSent] * 1e-6, row[kActivations]);
  }
  return text;
}

std::string PipelineMeter::BubbleLines(const Table& ranks) const {
  double of_wall = 0, of_spans = 0;
  const double seconds = LongestStep(ranks);
  const double count = static_cast<double>(ranks.size());
  for (const std::vector<double>& row : ranks) {
    of_wall += row[kBusy] / seconds / count;
    of_spans += row[kBusy] / row[kSpan] / count;
  }
  const auto line = [](const char* what, double time, double wall,
                       double spans) {
    return absl::StrFormat(
        "  %-10s %.2f ms, bubble %.1f %% of the wall clock, %.1f %% of the "
        "ranks' spans",
        what, time * 1e3, 100 * wall, 100 * spans);
  };
  return absl::StrCat(line("measured:", seconds, 1 - of_wall, 1 - of_spans),
                      "\n",
                      line("predicted:", predicted_->wall_seconds,
                           predicted_->wall, predicted_->span));
}

absl::StatusOr<std::vector<TimelineRecord>> PipelineMeter::Timelines() const {
  std::vector<TimelineRecord> records;
  if (recent_.empty()) return records;
  const ClockSync clock(worker_.comm);
  std::vector<std::vector<Span>> measured = recent_.back().spans;
  Table rows;
  for (std::vector<Span>& spans : measured) {
    for (Span& span : spans) {
      span.start_seconds = clock.RootTime(span.start_seconds);
      span.end_seconds = clock.RootTime(span.end_seconds);
    }
    rows.push_back({ExtentOf(spans).start_seconds});
  }
  ASSIGN_OR_RETURN(Table starts, GatherAll(std::move(rows)));
  double start = std::numeric_limits<double>::max();
  for (int row : RowsOf(worker_.env.rank))
    start = std::min(start, starts[static_cast<size_t>(row)][0]);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    records.push_back(Describe(measured[i], i, start, "measured"));
    if (!predicted_.has_value() || Pipeline() != 0) continue;
    const std::vector<Span>& simulated =
        prediction_.ranks[static_cast<size_t>(ranks_[i])];
    records.push_back(Describe(simulated, i, 0, "simulated"));
  }
  return records;
}

TimelineRecord PipelineMeter::Describe(const std::vector<Span>& spans,
                                       size_t index, double origin_seconds,
                                       const char* origin) const {
  TimelineRecord record;
  record.rank = worker_.env.rank;
  record.pipeline_rank = ranks_[index];
  record.step = recent_.back().step;
  record.schedule = schedule_->name;
  record.origin = origin;
  // Clocks of two hosts agree only up to an error; times must not be negative.
  const auto since = [origin_seconds](double seconds) {
    return std::max(0.0, seconds - origin_seconds);
  };
  for (const Span& span : spans) {
    if (!IsCompute(span.action.kind)) continue;
    record.spans.push_back({std::string(NameOf(span.action.kind)),
                            span.action.stage, span.action.micro_batch,
                            since(span.start_seconds),
                            since(span.end_seconds)});
  }
  return record;
}

}  // namespace rankwise
