#include "analysis/plan/recorded_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/plan/work.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kUnknownDeviation = 0.1;  // of a single run
// Maximum share of a step spent by kernels that move data; above it, the
// optimizer's bandwidth does not apply to them.
constexpr double kMostMoving = 0.5;
// A rate so low that products dominate the duration.
constexpr double kSlow = 1e6;

bool ExchangesNothing(const RunRecord& run) {
  return run.world_size == 1 || SkipsCommunication(run);
}

bool ShowsComputing(const RunTrace& trace, const RecordedRuns& which) {
  if (trace.ranks.empty()) return false;
  const RunRecord& run = trace.ranks[0].run;
  const bool computes =
      run.binary == "single" || run.binary == "ddp" || run.binary == "fsdp";
  return computes && run.forward_flops_per_example > 0 &&
         (ExchangesNothing(run) ||
          run.world_size <= which.most_exchanging_ranks);
}

std::string PrecisionOf(const RunTrace& run) {
  return FlagOf(run.ranks[0].run, "precision");
}

// Returns the duration of one micro-batch on a rank with the whole model.
double WholeSeconds(const Model& model, const Layout& layout,
                    const Engine& engine, const Device& device) {
  Cluster cluster;
  cluster.device = device;
  const LayerWork work =
      WorkOf(model, layout, engine, cluster, CostSide::kMiddle);
  const PassSeconds all = work.Of({true, true, true, model.blocks}).seconds;
  return all.Forward() + all.Backward();
}

// Measures the slowest rank's medians, per micro-batch and per step.
void Measure(const RunTrace& run, const ThroughputConfig& config,
             int64_t micro_batches, ComputingSample& sample) {
  for (const RankTrace& rank : run.ranks) {
    std::vector<double> computing, update;
    for (const StepRecord& step : MeasuredSteps(rank, config)) {
      computing.push_back((step.step_seconds - step.optimizer_seconds -
                           step.exposed_comm_seconds - step.data_wait_seconds) /
                          static_cast<double>(micro_batches));
      update.push_back(step.optimizer_seconds);
    }
    sample.seconds = std::max(sample.seconds, Median(computing));
    sample.update_seconds = std::max(sample.update_seconds, Median(update));
  }
}

// Requires a run that can be measured.
absl::StatusOr<ComputingSample> SampleOf(const RunTrace& run,
                                         const ThroughputConfig& config,
                                         int64_t global_batch) {
  const RunRecord& record = run.ranks[0].run;
  ASSIGN_OR_RETURN(const Model model, ModelOf(record));
  ASSIGN_OR_RETURN(const Layout layout, LayoutOf(record, global_batch));
  ASSIGN_OR_RETURN(const Engine engine, OwnEngine(FlagOf(record, "precision")));
  ComputingSample sample{&record, layout.micro_batch};
  Measure(run, config, layout.micro_batches, sample);
  if (!(sample.seconds > 0))
    return absl::FailedPreconditionError("its steps compute nothing");
  Device device;
  device.peak_flops = kSlow;
  const double products = WholeSeconds(model, layout, engine, device);
  sample.flops = kSlow * products;
  device.memory_bytes_per_second = 1;
  device.peak_flops = 1e-3;
  const double slow = WholeSeconds(model, layout, engine, device);
  sample.moved_bytes = slow - sample.flops / device.peak_flops;
  device = {};
  device.peak_flops = std::numeric_limits<double>::infinity();
  device.kernel_seconds = 1;
  sample.kernels = WholeSeconds(model, layout, engine, device);
  sample.update_bytes = engine.update_bytes * model.Parameters() /
                        static_cast<double>(layout.zero > 0 ? layout.dp : 1);
  return sample;
}

double SecondsOf(const ComputingSample& sample, const Device& device) {
  return sample.flops / device.peak_flops +
         sample.kernels * device.kernel_seconds +
         sample.moved_bytes / device.memory_bytes_per_second;
}

// Returns the memory bandwidth of the optimizer; infinite if kernels would take
// most of a step at that rate.
double MemoryRate(const std::vector<ComputingSample>& samples) {
  std::vector<double> rates;
  for (const ComputingSample& sample : samples) {
    if (sample.update_seconds > 0)
      rates.push_back(sample.update_bytes / sample.update_seconds);
  }
  const double none = std::numeric_limits<double>::infinity();
  if (rates.empty()) return none;
  const double rate = Median(rates);
  for (const ComputingSample& sample : samples) {
    if (sample.moved_bytes / rate > kMostMoving * sample.seconds) return none;
  }
  return rate;
}

// Fits seconds = flops / peak + kernels x kernel_seconds + bytes / rate by
// least squares of relative errors, with non-negative terms. A single batch
// size does not separate the first two: kernel_seconds is then 0.
Device FitDevice(const std::vector<ComputingSample>& samples) {
  Device device;
  device.memory_bytes_per_second = MemoryRate(samples);
  LeastSquares sums;
  for (const ComputingSample& sample : samples) {
    const double left = 1 - sample.moved_bytes /
                                device.memory_bytes_per_second / sample.seconds;
    sums.Add(sample.flops / sample.seconds, sample.kernels / sample.seconds,
             left);
  }
  double per_flop = sums.x0y / sums.x0x0;
  if (sums.Determinant() > 1e-6 * sums.x0x0 * sums.x1x1) {
    const auto [both, per_kernel] = sums.Solve();
    if (per_kernel > 0 && both > 0) {
      per_flop = both;
      device.kernel_seconds = per_kernel;
    }
  }
  device.peak_flops = 1 / per_flop;
  return device;
}

void SlowDown(double times, Device& device) {
  device.peak_flops /= times;
  device.memory_bytes_per_second /= times;
  device.kernel_seconds *= times;
}

// Returns the samples of the number of ranks with the most batch sizes, which
// best separate the device's parameters.
const std::vector<ComputingSample>& MostBatches(
    const std::map<int64_t, std::vector<ComputingSample>>& samples) {
  const auto batches = [](const auto& entry) {
    std::map<int64_t, int> found;
    for (const ComputingSample& sample : entry.second)
      found[sample.micro_batch] = 1;
    return found.size();
  };
  return std::max_element(samples.begin(), samples.end(),
                          [&](const auto& a, const auto& b) {
                            return batches(a) < batches(b);
                          })
      ->second;
}

// Returns the host's cores minus those used by `ranks` ranks; negative if it
// has too few.
int64_t CoresLeft(const RunRecord& run, int64_t ranks) {
  return run.host.cores - ranks * run.threads_per_rank;
}

// Returns the relative deviation of the samples from the device's prediction.
double DeviationOf(const std::vector<ComputingSample>& samples,
                   const Device& device) {
  if (samples.size() < 2) return kUnknownDeviation;
  double squares = 0;
  for (const ComputingSample& sample : samples) {
    const double error = SecondsOf(sample, device) / sample.seconds - 1;
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

absl::Status NothingShowsComputing(const std::string& precision) {
  return absl::FailedPreconditionError(absl::StrCat(
      "no run of single, ddp or fsdp ",
      precision.empty() ? ""
                        : absl::StrCat("with --precision=", precision, " "),
      "shows what computing takes: record one, bazel run //trainers:ddp -- "
      "--nproc=2 --model=gpt ",
      precision.empty() ? "" : absl::StrCat("--precision=", precision, " "),
      "--record=DIR/ddp.jsonl",
      precision.empty() ? "" : ", or plan for the --precision of the records"));
}

// All samples are fitted to one device.
absl::Status CheckKindOfDevice(
    const std::map<int64_t, std::vector<ComputingSample>>& samples) {
  const bool on_cpu = RanOnCpu(*samples.begin()->second.front().run);
  for (const auto& [ranks, those] : samples) {
    for (const ComputingSample& sample : those) {
      if (RanOnCpu(*sample.run) == on_cpu) continue;
      return absl::FailedPreconditionError(
          "some runs ran on CPUs and some on GPUs: give --records a folder "
          "with runs on one kind of device");
    }
  }
  return absl::OkStatus();
}

}  // namespace

RecordedMachine::RecordedMachine(absl::Span<const RunTrace> runs,
                                 const RecordedRuns& which)
    : network_(FitNetwork(runs, nullptr,
                          {.most_ranks = which.most_exchanging_ranks})) {
  for (const RunTrace& run : runs) {
    for (const RankTrace& rank : run.ranks) {
      const int64_t hosts = std::max<int64_t>(1, rank.run.hosts);
      most_on_a_host_ =
          std::max(most_on_a_host_, (rank.run.world_size + hosts - 1) / hosts);
      for (const OverlapRecord& record : rank.overlaps) {
        auto& [longer, alone] = overlaps_[rank.run.world_size];
        longer += Median(record.both_seconds) - Median(record.compute_seconds);
        alone += Median(record.comm_seconds);
      }
    }
    if (!ShowsComputing(run, which)) continue;
    absl::Status measurable = CheckMeasurable(run, which.throughput);
    if (!measurable.ok())
      refusals_.emplace_back(PrecisionOf(run), std::move(measurable));
  }
  std::vector<std::string> left_out;  // reported by `refusals_`
  for (const MeasuredRun& measured :
       MeasureRuns(runs, which.throughput, &left_out)) {
    const RunTrace& run = runs[measured.index];
    if (!ShowsComputing(run, which)) continue;
    const absl::StatusOr<ComputingSample> sample =
        SampleOf(run, which.throughput, measured.throughput.global_batch);
    if (sample.ok()) {
      samples_.push_back(*sample);
    } else {
      refusals_.emplace_back(PrecisionOf(run),
                             RunError(run, sample.status().message()));
    }
  }
}

// Returns samples by world size. If a size has runs without communication, its
// other runs are excluded.
absl::StatusOr<RecordedMachine::SamplesByRanks> RecordedMachine::SamplesOf(
    const std::string& precision) const {
  const auto is_taken = [&precision](const std::string& recorded) {
    return precision.empty() || recorded == precision;
  };
  SamplesByRanks quiet, all;
  for (const ComputingSample& sample : samples_) {
    if (!is_taken(FlagOf(*sample.run, "precision"))) continue;
    const int64_t ranks = sample.run->world_size;
    all[ranks].push_back(sample);
    if (ExchangesNothing(*sample.run)) quiet[ranks].push_back(sample);
  }
  for (auto& [ranks, samples] : quiet) all[ranks] = samples;
  if (!all.empty()) return all;
  absl::Status refusal = NothingShowsComputing(precision);
  for (const auto& [of_run, status] : refusals_) {
    if (is_taken(of_run)) refusal = status;
  }
  return refusal;
}

// Returns the fraction of its speed that computation keeps during collectives.
// Uses comm_bench's overlap at the largest world size up to `ranks`, or else at
// the smallest: 1 - (both - computation alone) / communication alone, as in
// OSU's benchmarks. nullopt if it was not measured.
std::optional<double> RecordedMachine::MeasuredSpeedDuringCommunication(
    int64_t ranks) const {
  if (overlaps_.empty()) return std::nullopt;
  auto like = overlaps_.upper_bound(ranks);
  if (like != overlaps_.begin()) --like;
  const auto [longer, alone] = like->second;
  return alone > 0 ? std::clamp(1 - longer / alone, 0.0, 1.0) : 1;
}

absl::StatusOr<Cluster> RecordedMachine::ClusterFor(
    const RecordedSize& size) const {
  ASSIGN_OR_RETURN(const SamplesByRanks samples, SamplesOf(size.precision));
  RETURN_IF_ERROR(CheckKindOfDevice(samples));
  RETURN_IF_ERROR(network_.status());
  auto like = samples.upper_bound(size.ranks);
  if (like != samples.begin()) --like;
  Cluster cluster;
  cluster.device = FitDevice(MostBatches(samples));
  std::vector<double> slower;
  for (const ComputingSample& sample : like->second)
    slower.push_back(sample.seconds / SecondsOf(sample, cluster.device));
  const double slowdown = GeometricMean(slower);
  SlowDown(slowdown, cluster.device);
  if (size.ranks > 1) cluster.slowdown_by_others = std::max(1.0, slowdown);
  cluster.deviation = DeviationOf(like->second, cluster.device);

  const RunRecord& one = *like->second.front().run;
  cluster.name = one.host.cpu_model;
  cluster.devices_per_node =
      size.devices_per_node > 0 ? size.devices_per_node : most_on_a_host_;
  cluster.device.is_cpu = RanOnCpu(one);
  if (cluster.device.is_cpu) {
    cluster.device.memory_bytes = static_cast<double>(one.host.memory_bytes) /
                                  static_cast<double>(cluster.devices_per_node);
  }
  cluster.network = *network_;
  const bool cores_communicate =
      RanOnCpu(one) && one.host.cores > 0 && cluster.network.backend != "fake";
  const int64_t left =
      CoresLeft(one, std::min(size.ranks, cluster.devices_per_node));
  cluster.cores_are_short = cores_communicate && left < 0;
  cluster.speed_during_communication =
      MeasuredSpeedDuringCommunication(size.ranks)
          .value_or(cores_communicate && left <= 0 ? 0 : 1);
  return cluster;
}

}  // namespace rankwise::plan
