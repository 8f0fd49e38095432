#include "analysis/runs/cell.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "analysis/runs/comm_bench.h"
#include "analysis/stats/statistics.h"
#include "records/text.h"

namespace rankwise {
namespace {

using CellKey =
    std::tuple<bool, std::string, int64_t, int64_t, int64_t, double, int64_t,
               std::string, std::string, std::string, std::string, std::string>;

// Returns the axes with several ranks, in mesh order: "pp2xtp2".
std::string MeshText(const RunRecord& run) {
  std::string text;
  for (const RecordedAxis& axis : run.mesh) {
    if (axis.size == 1) continue;
    absl::StrAppend(&text, text.empty() ? "" : "x", axis.name, axis.size);
  }
  return text;
}

std::string TrainerOf(const RunRecord& run) {
  std::string trainer = run.binary;
  const std::string mesh = MeshText(run), schedule = FlagOf(run, "schedule");
  const bool hybrid = run.binary == "hybrid";
  const bool has_mesh =
      hybrid ? !mesh.empty()
             : run.binary == "tensor_parallel" && absl::StrContains(mesh, 'x');
  if (has_mesh) absl::StrAppend(&trainer, " ", mesh);
  const bool scheduled = hybrid ? AxisSize(run, "pp") > 1
                                : run.binary == "pipeline" && !schedule.empty();
  if (scheduled) absl::StrAppend(&trainer, " ", schedule);
  const std::string consistency = FlagOf(run, "consistency");
  if (!consistency.empty()) absl::StrAppend(&trainer, " ", consistency);
  if (NumberFlagOf(run, "local_steps", 1) > 1) {
    absl::StrAppend(&trainer, " ", FlagOf(run, "outer"), " of ",
                    FlagOf(run, "local_steps"), " steps");
  }
  const std::string zero = FlagOf(run, "zero");
  if (!zero.empty() && zero != "0") absl::StrAppend(&trainer, " zero", zero);
  return trainer;
}

std::string Shape(const RunRecord& run) {
  std::string shape;
  for (const auto& [name, value] : run.flags) {
    if (IsShapeFlag(name)) absl::StrAppend(&shape, name, "=", value, "\n");
  }
  return shape;
}

CellKey KeyOf(const RunTrace& trace, const Throughput& throughput) {
  const RunRecord& run = trace.ranks[0].run;
  return {run.binary != "single",
          TrainerOf(run),
          run.world_size * ReplicasOf(run),
          CountHosts(trace),
          throughput.global_batch,
          throughput.largest_rank_batch,
          run.threads_per_rank,
          run.scaling_hash,
          Shape(run),
          run.backend,
          DeviceKind(run),
          CpuModels(trace)};
}

// Returns a name that identifies the device on its host.
std::string PhysicalDevice(const RankTrace& trace, const std::string& device) {
  if (!trace.environment.has_value()) return device;
  const auto& variables = trace.environment->variables;
  const auto visible = variables.find("CUDA_VISIBLE_DEVICES");
  absl::string_view number = device;
  size_t index = 0;
  if (visible == variables.end() || !absl::ConsumePrefix(&number, "cuda:") ||
      !absl::SimpleAtoi(number, &index)) {
    return device;
  }
  const std::vector<std::string> gpus = absl::StrSplit(visible->second, ',');
  return index < gpus.size() ? gpus[index] : device;
}

std::string SharedDevice(const RunTrace& run) {
  std::set<std::pair<std::string, std::string>> taken;
  for (const RankTrace& trace : run.ranks) {
    // A rank may list its device twice; only other ranks and other replicas
    // count as sharing it.
    std::vector<std::string> own = trace.run.devices;
    if (ReplicasOf(trace.run) == 1) {
      absl::c_sort(own);
      own.erase(std::unique(own.begin(), own.end()), own.end());
    }
    for (const std::string& device : own) {
      if (device == "cpu") continue;
      const std::string physical = PhysicalDevice(trace, device);
      if (!taken.emplace(trace.run.host.hostname, physical).second) {
        return device;
      }
    }
  }
  return "";
}

using Ranks = std::vector<const RankTrace*>;

// Returns the number of concurrent threads of a rank.
int64_t ThreadsOf(const RunRecord& run) {
  return run.threads_per_rank * ReplicasOf(run);
}

bool MoreThreadsThanCores(const Ranks& ranks) {
  int64_t threads = 0;
  for (const RankTrace* trace : ranks) threads += ThreadsOf(trace->run);
  const int64_t cores = ranks[0]->run.host.cores;
  return cores > 0 && threads > cores;
}

// Whether the rank's CPU quota is below the CPUs of its affinity mask, which
// host.cores would otherwise be at least.
bool HasQuota(const RankTrace* trace) {
  const int64_t cores = trace->run.host.cores;
  return cores > 0 && cores < std::ssize(trace->environment->cpus);
}

// Whether there are more threads than CPUs to run them: over all ranks, or over
// those confined to the CPUs of one rank.
bool MoreThreadsThanCpus(const Ranks& ranks) {
  std::map<std::set<int64_t>, int64_t> threads;  // by allowed CPUs
  std::set<int64_t> everywhere;
  for (const RankTrace* trace : ranks) {
    const std::vector<int64_t>& cpus = trace->environment->cpus;
    everywhere.insert(cpus.begin(), cpus.end());
    threads[{cpus.begin(), cpus.end()}] += ThreadsOf(trace->run);
  }
  threads.try_emplace(everywhere, 0);
  for (const auto& [place, own] : threads) {
    int64_t confined = 0;
    for (const auto& [cpus, count] : threads) {
      const bool within =
          std::includes(place.begin(), place.end(), cpus.begin(), cpus.end());
      if (within) confined += count;
    }
    if (confined > static_cast<int64_t>(place.size())) return true;
  }
  return false;
}

bool Oversubscribed(const RunTrace& run) {
  std::map<std::string, Ranks> hosts;
  for (const RankTrace& trace : run.ranks) {
    hosts[trace.run.host.hostname].push_back(&trace);
  }
  return absl::c_any_of(hosts, [](const auto& host) {
    const Ranks& ranks = host.second;
    const bool places_known = absl::c_all_of(ranks, [](const RankTrace* trace) {
      return trace->environment.has_value() &&
             !trace->environment->cpus.empty();
    });
    return places_known && absl::c_none_of(ranks, HasQuota)
               ? MoreThreadsThanCpus(ranks)
               : MoreThreadsThanCores(ranks);
  });
}

// Returns the record of the rank with the most memory, summed over the measured
// kinds; nullopt unless all ranks recorded them.
std::optional<MemoryRecord> FullestRank(const RunTrace& run) {
  std::optional<MemoryRecord> fullest;
  for (const RankTrace& trace : run.ranks) {
    if (!trace.memory.has_value()) return std::nullopt;
    const int64_t bytes = TotalBytes(trace.memory->measured);
    if (bytes == 0) return std::nullopt;
    if (!fullest.has_value() || bytes > TotalBytes(fullest->measured))
      fullest = trace.memory;
  }
  return fullest;
}

// Sets the fields that may differ between the repetitions of a cell.
void AddRuns(absl::Span<const RunTrace> runs, Cell& cell) {
  std::set<std::string> devices;
  std::set<double> stated;
  double measured_flops = 0;
  std::vector<double> peaks;
  for (size_t index : cell.run_indices) {
    const RunTrace& run = runs[index];
    if (cell.shared_device.empty()) cell.shared_device = SharedDevice(run);
    cell.oversubscribed |= Oversubscribed(run);
    for (const RankTrace& trace : run.ranks) {
      const std::string code = CodeVersion(trace.run);
      if (!absl::c_linear_search(cell.code_versions, code)) {
        cell.code_versions.push_back(code);
      }
      devices.insert(trace.run.devices.begin(), trace.run.devices.end());
      cell.several_devices_per_rank |=
          std::ssize(trace.run.devices) > ReplicasOf(trace.run);
    }
    const RunRecord& first = run.ranks[0].run;
    const double peak_tflops = NumberFlagOf(first, "peak_tflops", 0);
    if (peak_tflops > 0) stated.insert(peak_tflops);
    measured_flops = std::max(measured_flops, first.peak_flops_per_second);
    cell.peak_bytes_per_second =
        std::max(cell.peak_bytes_per_second, first.peak_bytes_per_second);
    const double peak_bytes = PeakBytes(run);
    if (peak_bytes > 0) peaks.push_back(peak_bytes);
    if (!cell.memory.has_value()) cell.memory = FullestRank(run);
  }
  cell.devices.assign(devices.begin(), devices.end());
  if (stated.size() == 1) cell.peak_tflops = *stated.begin();
  if (stated.empty() && measured_flops > 0) {
    cell.peak_tflops = 1e-12 * measured_flops;
    cell.peak_is_measured = true;
  }
  if (!peaks.empty()) cell.peak_bytes = Median(peaks);
}

// Returns a key that is equal for runs that measure the same peak.
auto PeakKeyOf(const RunRecord& run) {
  const std::string device = run.devices.empty() ? "" : run.devices[0];
  return std::make_tuple(run.host.hostname, run.host.cpu_model, run.host.cores,
                         device, run.threads_per_rank, FlagOf(run, "precision"),
                         FlagOf(run, "tf32"), run.versions.torch);
}

// A study's first peak measurement may have been disturbed: all cells that
// could have measured the same peak get the highest one.
void ShareMeasuredPeaks(std::vector<Cell>& cells) {
  using Key = decltype(PeakKeyOf(RunRecord()));
  std::map<Key, double> tflops, bytes_per_second;
  for (const Cell& cell : cells) {
    const Key key = PeakKeyOf(cell.run);
    if (cell.peak_is_measured)
      tflops[key] = std::max(tflops[key], cell.peak_tflops);
    bytes_per_second[key] =
        std::max(bytes_per_second[key], cell.peak_bytes_per_second);
  }
  for (Cell& cell : cells) {
    const Key key = PeakKeyOf(cell.run);
    if (cell.peak_is_measured) cell.peak_tflops = tflops[key];
    if (cell.peak_bytes_per_second > 0)
      cell.peak_bytes_per_second = bytes_per_second[key];
  }
}

// Returns "steps 1 to 90".
std::string StepsText(const RunTrace& run) {
  const std::vector<StepRecord>& steps = run.ranks[0].steps;
  return absl::StrCat("steps ", steps.front().step, " to ", steps.back().step);
}

std::string PartText(const RunTrace& part, const RunTrace& longest) {
  return absl::StrCat(
      part.source, ": ", StepsText(part), " are a part of the job of which ",
      StepsText(longest),
      part.source == longest.source ? "" : absl::StrCat(" in ", longest.source),
      " are measured: parts of one job are one repetition");
}

// Returns the number of devices of all ranks of the cell.
double DevicesOf(const Cell& cell) {
  const std::set<std::string> of_rank(cell.run.devices.begin(),
                                      cell.run.devices.end());
  const double ranks = cell.run.world_size;
  return ReplicasOf(cell.run) > 1
             ? ranks
             : ranks * static_cast<double>(std::max<size_t>(1, of_rank.size()));
}

// Returns the model's rate of operations over the peak; NaN if unknown.
double ShareOfPeak(const Cell& cell) {
  const double forward = cell.run.forward_flops_per_example;
  if (!(forward > 0) || !(cell.peak_tflops > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 3 * forward * cell.ExamplesPerSecond() /
         (DevicesOf(cell) * cell.peak_tflops * 1e12);
}

bool IsAboveMeasuredPeak(const Cell& cell, double share_of_peak) {
  return cell.peak_is_measured && share_of_peak > 1;
}

}  // namespace

std::vector<double> Cell::Values(double Throughput::*metric) const {
  return NumbersOf(repetitions, metric);
}

double Cell::ExamplesPerSecond() const {
  return GeometricMean(Values(&Throughput::examples_per_second));
}

std::string Cell::Trainer() const { return TrainerOf(run); }

std::string Cell::Name() const {
  return absl::StrCat(Trainer(), " on ", Counted(run.world_size, "rank"),
                      hosts > 1 ? absl::StrCat(" of ", hosts, " hosts") : "");
}

bool Cell::IsAblation() const { return SkipsCommunication(run); }

double PeakBytes(const RankTrace& rank) {
  if (!rank.memory.has_value()) return 0;
  const int64_t on_device = rank.memory->peak_device_bytes;
  return on_device > 0 ? on_device : rank.memory->peak_host_bytes;
}

double PeakBytes(const RunTrace& run) {
  double fullest = 0;
  for (const RankTrace& trace : run.ranks) {
    if (!trace.memory.has_value()) return 0;
    fullest = std::max(fullest, PeakBytes(trace));
  }
  return fullest;
}

int64_t TotalBytes(const MemoryParts& parts) {
  return parts.parameter_bytes + parts.gradient_bytes + parts.optimizer_bytes +
         parts.unsharded_bytes + parts.activation_bytes;
}

std::string DeviceKind(const RunRecord& run) {
  if (run.devices.empty()) return "";
  return run.devices[0].substr(0, run.devices[0].find(':'));
}

std::string CpuModels(const RunTrace& run) {
  std::set<std::string> models;
  for (const RankTrace& trace : run.ranks) {
    models.insert(trace.run.host.cpu_model);
  }
  return absl::StrJoin(models, " and ");
}

std::string CodeVersion(const RunRecord& run) {
  if (run.source_hash.empty()) return kUnknownCode;
  return absl::StrCat("source ", run.source_hash, " with torch ",
                      run.versions.torch);
}

std::string WhyNotOneCode(absl::Span<const std::string> versions) {
  if (versions.size() > 1) {
    return absl::StrCat("ran different code (", absl::StrJoin(versions, ", "),
                        ")");
  }
  if (versions.empty() || versions[0] != kUnknownCode) return "";
  return "ran code that their records do not name";
}

std::string CommitText(const RunRecord& run) {
  if (run.git_commit.empty()) return "an unknown commit";
  return absl::StrCat("commit ", run.git_commit.substr(0, 12),
                      run.git_state == "clean"      ? ""
                      : run.git_state == "modified" ? " (modified)"
                                                    : " or another");
}

bool IsShapeFlag(absl::string_view name) {
  constexpr absl::string_view kShape[] = {
      "accumulate", "cp",           "devices", "dp",
      "mesh_order", "microbatches", "pp",      "replicas",
      "servers",    "shard_ranks",  "split",   "tp"};
  return absl::c_linear_search(kShape, name);
}

std::string BatchText(double examples) {
  const bool whole = examples == std::floor(examples);
  return absl::StrFormat(whole ? "%.0f" : "%.1f", examples);
}

std::vector<MeasuredRun> MeasureRuns(absl::Span<const RunTrace> runs,
                                     const ThroughputConfig& config,
                                     std::vector<std::string>* left_out) {
  const std::vector<size_t> jobs = JobsOf(runs);
  std::vector<MeasuredRun> measured;
  // jobs' indices in `measured`
  std::map<std::pair<size_t, CellKey>, size_t> places;
  for (size_t index = 0; index < runs.size(); ++index) {
    const RunTrace& run = runs[index];
    if (!run.ranks.empty() && IsCommBench(run.ranks[0].run)) continue;
    absl::StatusOr<Throughput> throughput = MeasureThroughput(run, config);
    if (!throughput.ok()) {
      left_out->push_back(std::string(throughput.status().message()));
      continue;
    }
    MeasuredRun part = {index, *std::move(throughput)};
    const auto [place, is_new] = places.try_emplace(
        {jobs[index], KeyOf(run, part.throughput)}, measured.size());
    if (is_new) {
      measured.push_back(std::move(part));
      continue;
    }
    MeasuredRun& longest = measured[place->second];
    if (part.throughput.steps > longest.throughput.steps)
      std::swap(part, longest);
    left_out->push_back(PartText(runs[part.index], runs[longest.index]));
  }
  return measured;
}

std::vector<Cell> GroupIntoCells(absl::Span<const RunTrace> runs,
                                 const ThroughputConfig& config,
                                 std::vector<std::string>* left_out) {
  std::map<CellKey, Cell> cells;
  for (MeasuredRun& measured : MeasureRuns(runs, config, left_out)) {
    const RunTrace& run = runs[measured.index];
    Throughput* const throughput = &measured.throughput;
    Cell& cell = cells[KeyOf(run, *throughput)];
    if (cell.repetitions.empty()) {
      cell.run = run.ranks[0].run;
      cell.run.world_size *= ReplicasOf(cell.run);
      cell.global_batch = throughput->global_batch;
      cell.rank_batch = throughput->largest_rank_batch;
      cell.hosts = CountHosts(run);
    }
    if (!run.ranks[0].schedules.empty()) {
      absl::StatusOr<PipelineUse> use = MeasurePipelineUse(run, config);
      if (use.ok()) {
        cell.pipelines.push_back(*std::move(use));
      } else {
        left_out->push_back(absl::StrCat("from the table of pipelines: ",
                                         use.status().message()));
      }
    }
    cell.repetitions.push_back(std::move(measured.throughput));
    cell.run_indices.push_back(measured.index);
  }
  std::vector<Cell> result;
  for (auto& [key, cell] : cells) {
    AddRuns(runs, cell);
    result.push_back(std::move(cell));
  }
  ShareMeasuredPeaks(result);
  return result;
}

ExampleUnit UnitOf(const RunRecord& run) {
  return {run.example, run.tokens_per_example};
}

RateColumn::RateColumn(absl::Span<const Cell> cells) {
  for (const Cell& cell : cells) {
    const std::string name = UnitOf(cell.run).RateName();
    if (name_.empty()) name_ = name;
    if (name_ != name) name_ = ExampleUnit().RateName();
  }
  if (name_.empty()) name_ = ExampleUnit().RateName();
}

double RateColumn::Of(const Cell& cell, double examples_per_second) const {
  const ExampleUnit unit = UnitOf(cell.run);
  return unit.RateName() == name_ ? unit.Rate(examples_per_second)
                                  : examples_per_second;
}

double ModelFlopsUtilization(const Cell& cell) {
  const double share = ShareOfPeak(cell);
  return IsAboveMeasuredPeak(cell, share)
             ? std::numeric_limits<double>::quiet_NaN()
             : share;
}

std::string AbovePeakText(const Cell& cell) {
  const double share = ShareOfPeak(cell);
  if (!IsAboveMeasuredPeak(cell, share)) return "";
  return absl::StrFormat("%s (%.3g times %s)", cell.Name(), share,
                         PeakText(cell));
}

std::string PeakText(const Cell& cell) {
  return cell.peak_is_measured
             ? absl::StrFormat("the measured %.3g TFLOPS", cell.peak_tflops)
             : absl::StrFormat("the stated %g TFLOPS", cell.peak_tflops);
}

double MemoryBandwidthShare(const Cell& cell) {
  if (!(cell.run.step_bytes > 0) || !(cell.peak_bytes_per_second > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double processes = static_cast<double>(cell.run.world_size) /
                           static_cast<double>(ReplicasOf(cell.run));
  const double steps_per_second =
      cell.ExamplesPerSecond() / static_cast<double>(cell.global_batch);
  const double share = cell.run.step_bytes * processes * steps_per_second /
                       (DevicesOf(cell) * cell.peak_bytes_per_second);
  return share <= 1 ? share : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace rankwise
