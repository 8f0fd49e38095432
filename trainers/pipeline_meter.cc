#include "trainers/pipeline_meter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/job_clock.h"
#include "trainers/median.h"
#include "trainers/timeline_record.h"

namespace rankwise {
namespace {

constexpr int64_t kFirstPrediction = 3;  // full steps before it
constexpr size_t kRecentSteps = 10;
constexpr size_t kKinds = 4;  // of computation
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What ranks tell each other for the summary.
enum Column : size_t {
  kSeconds,
  kSpan,
  kBusy,
  kWait,
  kActivations,
  kTransfer,
  kSent
};

int64_t CountSends(const std::vector<Span>& spans) {
  return std::count_if(spans.begin(), spans.end(), [](const Span& span) {
    return span.action.kind == ActionKind::kSendForward ||
           span.action.kind == ActionKind::kSendBackward;
  });
}

// Of the waits, the part in which the messages were under way.
double ExposedTransfer(const std::vector<MessageWait>& waits,
                       const LinkCosts& link) {
  double seconds = 0;
  for (const MessageWait& wait : waits) {
    seconds += std::min(wait.seconds,
                        link.alpha_seconds + static_cast<double>(wait.bytes) *
                                                 link.beta_seconds_per_byte);
  }
  return seconds;
}

// Every rank's `values`, which are equally many.
absl::StatusOr<std::vector<std::vector<double>>> GatherAll(
    const std::vector<double>& values, const Worker& worker) {
  absl::StatusOr<std::vector<at::Tensor>> all =
      worker.comm->AllGather(at::tensor(values, at::kDouble).to(worker.device));
  if (!all.ok()) return all.status();
  std::vector<std::vector<double>> lists;
  for (const at::Tensor& tensor : *all) {
    const at::Tensor on_host = tensor.cpu();
    const double* first = on_host.data_ptr<double>();
    lists.emplace_back(first, first + on_host.numel());
  }
  return lists;
}

double Percent(double part) { return 100 * part; }

}  // namespace

PipelineMeter::PipelineMeter(const Schedule& schedule,
                             std::vector<double> output_bytes, LinkCosts link,
                             const Worker& worker)
    : schedule_(schedule),
      output_bytes_(std::move(output_bytes)),
      link_(link),
      worker_(worker),
      next_prediction_(kFirstPrediction) {}

absl::StatusOr<ScheduleRecord> PipelineMeter::Add(
    int64_t step, const Schedule& schedule, const ExecutorStep& measured) {
  ScheduleRecord record;
  record.rank = worker_.env.rank;
  record.step = step;
  record.schedule = schedule.name;
  record.pipeline_rank = worker_.shard();
  record.pipeline_size = worker_.shards;
  record.replica = worker_.replica();
  record.replicas = worker_.replicas();
  record.stages = schedule.num_stages();
  record.micro_batches = schedule.num_micro_batches;
  record.schedule_seconds = measured.end_seconds - measured.start_seconds;
  const Extent extent = ExtentOf(measured.spans);
  record.span_seconds = extent.seconds();
  record.busy_seconds = extent.busy_seconds();
  record.wait_seconds = measured.wait_seconds();
  record.exposed_transfer_seconds = ExposedTransfer(measured.waits, link_);
  // What a sender sees of a message ends long after it has arrived.
  record.transfer_seconds =
      static_cast<double>(CountSends(measured.spans)) * link_.alpha_seconds +
      static_cast<double>(measured.sent_bytes) * link_.beta_seconds_per_byte;
  record.sent_bytes = measured.sent_bytes;
  record.received_bytes = measured.received_bytes;
  record.peak_activations = measured.peak_activations;
  record.predicted_seconds = record.predicted_span_bubble =
      record.predicted_wall_bubble = kNaN;
  if (!IsFull(schedule)) return record;
  FillPrediction(record);
  ++full_steps_;
  sent_bytes_ = static_cast<double>(measured.sent_bytes);
  transfer_seconds_ = record.transfer_seconds;
  peak_activations_ = std::max(peak_activations_, measured.peak_activations);
  if (full_steps_ > 1) {  // the first one warms up
    shares_.push_back({record.schedule_seconds, record.span_seconds,
                       record.busy_seconds, record.wait_seconds});
    recent_.push_back({step, measured.spans});
    if (recent_.size() > kRecentSteps) recent_.pop_front();
  }
  if (full_steps_ == next_prediction_) {
    next_prediction_ *= 2;
    absl::Status predicted = PredictAnew();
    if (!predicted.ok()) return predicted;
  }
  return record;
}

void PipelineMeter::FillPrediction(ScheduleRecord& record) const {
  if (!predicted_) return;
  record.predicted_seconds = predicted_bubbles_.wall_seconds;
  record.predicted_span_bubble = predicted_bubbles_.span;
  record.predicted_wall_bubble = predicted_bubbles_.wall;
}

std::vector<double> PipelineMeter::MedianCosts() const {
  const size_t stages = static_cast<size_t>(schedule_.num_stages());
  std::vector<std::vector<double>> samples(stages * kKinds);
  for (const FullStep& step : recent_) {
    for (const Span& span : step.spans) {
      if (!IsCompute(span.action.kind)) continue;
      samples[static_cast<size_t>(span.action.stage) * kKinds +
              static_cast<size_t>(span.action.kind)]
          .push_back(span.end_seconds - span.start_seconds);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& values : samples)
    medians.push_back(Median(std::move(values)));
  return medians;
}

absl::StatusOr<Timeline> PipelineMeter::Predict() const {
  absl::StatusOr<std::vector<std::vector<double>>> all =
      GatherAll(MedianCosts(), worker_);
  if (!all.ok()) return all.status();
  const auto cost = [&](size_t stage, ActionKind kind) {
    std::vector<double> replicas;
    for (const std::vector<double>& medians : *all) {
      const double value = medians[stage * kKinds + static_cast<size_t>(kind)];
      if (!std::isnan(value)) replicas.push_back(value);
    }
    const double median = Median(replicas);
    return std::isnan(median) ? 0 : median;  // not part of this schedule
  };
  SimulationCosts costs;
  costs.link = link_;
  for (size_t stage = 0; stage < output_bytes_.size(); ++stage) {
    StageCosts stage_costs;
    stage_costs.forward_seconds = cost(stage, ActionKind::kForward);
    stage_costs.backward_seconds = cost(stage, ActionKind::kBackward);
    stage_costs.input_grad_seconds = cost(stage, ActionKind::kInputGrad);
    stage_costs.weight_grad_seconds = cost(stage, ActionKind::kWeightGrad);
    stage_costs.output_bytes = output_bytes_[stage];
    costs.stages.push_back(stage_costs);
  }
  return Simulate(schedule_, costs);
}

absl::Status PipelineMeter::PredictAnew() {
  absl::StatusOr<Timeline> timeline = Predict();
  if (!timeline.ok()) return timeline.status();
  prediction_ = *std::move(timeline);
  predicted_bubbles_ = MeasureBubbles(prediction_);
  predicted_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> PipelineMeter::Summary() {
  if (shares_.empty()) {
    return std::string(
        "too few steps with all their micro-batches to say how busy the stages "
        "were");
  }
  // With the costs of the last steps.
  absl::Status predicted = PredictAnew();
  if (!predicted.ok()) return predicted;
  const auto median = [this](double StepShare::*part) {
    std::vector<double> values;
    for (const StepShare& share : shares_) values.push_back(share.*part);
    return Median(std::move(values));
  };
  absl::StatusOr<std::vector<std::vector<double>>> all = GatherAll(
      {median(&StepShare::seconds), median(&StepShare::span_seconds),
       median(&StepShare::busy_seconds), median(&StepShare::wait_seconds),
       static_cast<double>(peak_activations_), transfer_seconds_, sent_bytes_},
      worker_);
  if (!all.ok()) return all.status();
  // Stages of the same place are alike in every replica: the first one's.
  all->resize(static_cast<size_t>(worker_.shards));
  return absl::StrCat(RankTable(*all), BubbleLines(*all));
}

std::string PipelineMeter::RankTable(
    const std::vector<std::vector<double>>& ranks) const {
  double seconds = 0;
  for (const std::vector<double>& row : ranks)
    seconds = std::max(seconds, row[kSeconds]);
  std::string text = absl::StrFormat(
      "%s, ranks %d, micro-batches %d; medians over %d steps\n"
      "  rank  stages    busy ms   idle ms  utilisation  waiting ms  "
      "transfer ms  sent MB  activations kept\n",
      schedule_.name, ranks.size(), schedule_.num_micro_batches,
      shares_.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double>& row = ranks[rank];
    absl::StrAppendFormat(
        &text,
        "  %4d  %-8s %8.2f  %8.2f  %9.1f %%  %10.2f  %11.2f  %7.2f  %16.0f\n",
        rank, absl::StrJoin(schedule_.StagesOf(static_cast<int>(rank)), ","),
        row[kBusy] * 1e3, (seconds - row[kBusy]) * 1e3,
        Percent(row[kBusy] / seconds), row[kWait] * 1e3, row[kTransfer] * 1e3,
        row[kSent] * 1e-6, row[kActivations]);
  }
  return text;
}

std::string PipelineMeter::BubbleLines(
    const std::vector<std::vector<double>>& ranks) const {
  double seconds = 0, of_wall = 0, of_spans = 0;
  for (const std::vector<double>& row : ranks)
    seconds = std::max(seconds, row[kSeconds]);
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
        what, time * 1e3, Percent(wall), Percent(spans));
  };
  return absl::StrCat(line("measured:", seconds, 1 - of_wall, 1 - of_spans),
                      "\n",
                      line("predicted:", predicted_bubbles_.wall_seconds,
                           predicted_bubbles_.wall, predicted_bubbles_.span));
}

absl::StatusOr<std::vector<TimelineRecord>> PipelineMeter::Timelines() const {
  std::vector<TimelineRecord> records;
  if (recent_.empty()) return records;
  const JobClock clock(worker_.comm);
  std::vector<Span> measured = recent_.back().spans;
  for (Span& span : measured) {
    span.start_seconds = clock.RootTime(span.start_seconds);
    span.end_seconds = clock.RootTime(span.end_seconds);
  }
  absl::StatusOr<std::vector<std::vector<double>>> starts =
      GatherAll({ExtentOf(measured).start_seconds}, worker_);
  if (!starts.ok()) return starts.status();
  const auto first = starts->begin() + worker_.replica() * worker_.shards;
  const double start = (*std::min_element(first, first + worker_.shards))[0];
  records.push_back(Describe(measured, start, "measured"));
  if (predicted_ && worker_.replica() == 0) {
    const std::vector<Span>& simulated =
        prediction_.ranks[static_cast<size_t>(worker_.shard())];
    records.push_back(Describe(simulated, 0, "simulated"));
  }
  return records;
}

TimelineRecord PipelineMeter::Describe(const std::vector<Span>& spans,
                                       double origin_seconds,
                                       const char* origin) const {
  TimelineRecord record = ToTimelineRecord(spans, origin_seconds);
  record.rank = worker_.env.rank;
  record.step = recent_.back().step;
  record.schedule = schedule_.name;
  record.origin = origin;
  return record;
}

}  // namespace rankwise
