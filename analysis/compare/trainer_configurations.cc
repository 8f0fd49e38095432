#include "analysis/compare/trainer_configurations.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/cell.h"
#include "analysis/stats/statistics.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

// What a rank spent in `part` of a step after warm-up: mean over steps and
// ranks.
double MeanSeconds(const RunTrace& run, const ThroughputConfig& config,
                   double StepRecord::*part) {
  double sum = 0, steps = 0;
  for (const RankTrace& trace : run.ranks) {
    for (size_t i = config.warmup_steps; i < trace.steps.size(); ++i) {
      sum += trace.steps[i].*part;
      ++steps;
    }
  }
  return sum / steps;
}

// All flags but those that only say what is written where.
std::map<std::string, std::string> FlagsOf(const RunRecord& run) {
  std::map<std::string, std::string> flags = run.flags;
  std::erase_if(flags, [](const auto& flag) {
    return FollowsWorldSizeOrOutput(flag.first) && !IsShapeFlag(flag.first) &&
           flag.first != "batch_size";
  });
  return flags;
}

std::vector<MetricSample> SamplesOf(const Cell& cell,
                                    absl::Span<const RunTrace> runs,
                                    const ThroughputConfig& config) {
  const std::vector<double> steps = cell.Values(&Throughput::step_seconds);
  MetricSample exposed{"exposed_comm_seconds", {}, Median(steps)};
  MetricSample data_wait{"data_wait_seconds", {}, Median(steps)};
  MetricSample peak{"peak_bytes", {}};
  for (size_t index : cell.run_indices) {
    const RunTrace& run = runs[index];
    exposed.values.push_back(
        MeanSeconds(run, config, &StepRecord::exposed_comm_seconds));
    data_wait.values.push_back(
        MeanSeconds(run, config, &StepRecord::data_wait_seconds));
    if (PeakBytes(run) > 0) peak.values.push_back(PeakBytes(run));
  }
  std::vector<MetricSample> samples = {
      {"step_seconds", steps},
      {"examples_per_second", cell.Values(&Throughput::examples_per_second)}};
  // Within captured steps it is not known.
  if (!std::isnan(Median(cell.Values(&Throughput::exposed_comm_share)))) {
    samples.push_back(std::move(exposed));
  }
  samples.push_back(std::move(data_wait));
  if (!peak.values.empty()) samples.push_back(std::move(peak));
  return samples;
}

Configuration ConfigurationOf(const Cell& cell, absl::Span<const RunTrace> runs,
                              const ThroughputConfig& config) {
  Configuration result;
  result.name =
      absl::StrCat(cell.Name(), ", batch ", BatchText(cell.rank_batch),
                   cell.IsAblation() ? ", without communication" : "");
  result.unit = "run";
  result.identity = {
      {"trainer", cell.Trainer()},
      {"ranks", absl::StrCat(cell.run.world_size)},
      {"global batch", absl::StrCat(cell.global_batch)},
      {"batch per rank", BatchText(cell.rank_batch)},
      {"threads per rank", absl::StrCat(cell.run.threads_per_rank)},
      {"backend", cell.run.backend},
      {"device", DeviceKind(cell.run)}};
  result.flags = FlagsOf(cell.run);
  result.cpus = CpuModels(runs[cell.run_indices[0]]);
  result.code_versions = cell.code_versions;
  result.samples = SamplesOf(cell, runs, config);
  return result;
}

// Configurations of one name are told apart by the flags in which they differ.
void TellApart(std::vector<Configuration>& configurations) {
  std::map<std::string, std::vector<Configuration*>> by_name;
  for (Configuration& c : configurations) by_name[c.name].push_back(&c);
  for (auto& [name, same] : by_name) {
    std::map<std::string, std::set<std::string>> values;
    for (const Configuration* c : same) {
      for (const auto& [flag, value] : c->flags) values[flag].insert(value);
    }
    for (Configuration* c : same) {
      for (const auto& [flag, value] : c->flags) {
        if (values[flag].size() == 1) continue;
        absl::StrAppend(&c->name, ", --", flag, "=", value);
      }
    }
  }
}

}  // namespace

std::vector<Configuration> TrainerConfigurations(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config,
    std::vector<std::string>* left_out) {
  std::vector<Configuration> result;
  for (const Cell& cell : GroupIntoCells(runs, config, left_out)) {
    result.push_back(ConfigurationOf(cell, runs, config));
  }
  TellApart(result);
  return result;
}

}  // namespace rankwise
