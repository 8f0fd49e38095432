#include "analysis/cell.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

using CellKey = std::tuple<bool, std::string, int64_t, int64_t, double, int64_t,
                           std::string, std::string>;

std::string TrainerOf(const RunRecord& run) {
  const auto schedule = run.flags.find("schedule");
  if (run.binary != "pipeline" || schedule == run.flags.end()) {
    return run.binary;
  }
  return absl::StrCat(run.binary, " ", schedule->second);
}

// The flags that follow the world size but do not follow from it.
std::string Shape(const RunRecord& run) {
  std::string shape;
  for (const char* name :
       {"accumulate", "devices", "dp", "microbatches", "pp", "split"}) {
    const auto flag = run.flags.find(name);
    if (flag == run.flags.end()) continue;
    absl::StrAppend(&shape, name, "=", flag->second, "\n");
  }
  return shape;
}

CellKey KeyOf(const RunRecord& run, const Throughput& throughput) {
  return {run.binary != "single",
          TrainerOf(run),
          run.world_size,
          throughput.global_batch,
          throughput.largest_rank_batch,
          run.threads_per_rank,
          run.scaling_hash,
          Shape(run)};
}

std::string SharedDevice(const RunTrace& run) {
  std::set<std::pair<std::string, std::string>> taken;
  for (const RankTrace& trace : run.ranks) {
    // A rank may name its device twice; only another rank's counts.
    const std::set<std::string> own(trace.run.devices.begin(),
                                    trace.run.devices.end());
    for (const std::string& device : own) {
      if (device == "cpu") continue;
      if (!taken.emplace(trace.run.host.hostname, device).second) return device;
    }
  }
  return "";
}

bool SeveralDevicesPerRank(const RunTrace& run) {
  return std::any_of(
      run.ranks.begin(), run.ranks.end(),
      [](const RankTrace& trace) { return trace.run.devices.size() > 1; });
}

bool Oversubscribed(const RunTrace& run) {
  std::map<std::string, int64_t> threads;  // by host
  for (const RankTrace& trace : run.ranks) {
    const HostInfo& host = trace.run.host;
    threads[host.hostname] += trace.run.threads_per_rank;
    if (host.cores > 0 && threads[host.hostname] > host.cores) return true;
  }
  return false;
}

}  // namespace

std::vector<double> Cell::Values(double Throughput::*metric) const {
  std::vector<double> values;
  for (const Throughput& repetition : repetitions) {
    values.push_back(repetition.*metric);
  }
  return values;
}

std::string Cell::Trainer() const { return TrainerOf(run); }

std::string Cell::Name() const {
  return absl::StrCat(Trainer(), " on ", run.world_size,
                      run.world_size == 1 ? " rank" : " ranks");
}

std::string BatchText(double examples) {
  const bool whole = examples == std::floor(examples);
  return absl::StrFormat(whole ? "%.0f" : "%.1f", examples);
}

std::vector<Cell> GroupIntoCells(absl::Span<const RunTrace> runs,
                                 const ThroughputConfig& config,
                                 std::vector<std::string>* left_out) {
  std::map<CellKey, Cell> cells;
  for (size_t index = 0; index < runs.size(); ++index) {
    const RunTrace& run = runs[index];
    absl::StatusOr<Throughput> throughput = MeasureThroughput(run, config);
    if (!throughput.ok()) {
      left_out->push_back(std::string(throughput.status().message()));
      continue;
    }
    const RunRecord& record = run.ranks[0].run;
    Cell& cell = cells[KeyOf(record, *throughput)];
    if (cell.repetitions.empty()) {
      cell.run = record;
      cell.global_batch = throughput->global_batch;
      cell.rank_batch = throughput->largest_rank_batch;
    }
    if (cell.shared_device.empty()) cell.shared_device = SharedDevice(run);
    cell.oversubscribed |= Oversubscribed(run);
    cell.several_devices_per_rank |= SeveralDevicesPerRank(run);
    if (!run.ranks[0].schedules.empty()) {
      absl::StatusOr<PipelineUse> use = MeasurePipelineUse(run, config);
      if (use.ok()) {
        cell.pipelines.push_back(*std::move(use));
      } else {
        left_out->push_back(absl::StrCat("of the table of pipelines, ",
                                         use.status().message()));
      }
    }
    cell.repetitions.push_back(*std::move(throughput));
    cell.run_indices.push_back(index);
  }
  std::vector<Cell> result;
  for (auto& [key, cell] : cells) result.push_back(std::move(cell));
  return result;
}

}  // namespace rankwise
