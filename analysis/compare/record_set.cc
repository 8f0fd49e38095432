#include "analysis/compare/record_set.h"

#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/runs/run_trace.h"
#include "analysis/stats/statistics.h"
#include "records/run_origin.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Returns the mean seconds of `part` over the steps after warm-up and over the
// training ranks.
double MeanSeconds(const RunTrace& run, const ThroughputConfig& config,
                   double StepRecord::*part) {
  double sum = 0, steps = 0;
  for (const RankTrace& trace : run.ranks) {
    if (Serves(trace)) continue;
    for (size_t i = config.warmup_steps; i < trace.steps.size(); ++i) {
      sum += trace.steps[i].*part;
      ++steps;
    }
  }
  return sum / steps;
}

// Returns all flags except those that only affect output.
std::map<std::string, std::string> TrainerFlags(const RunRecord& run) {
  std::map<std::string, std::string> flags = run.flags;
  std::erase_if(flags, [](const auto& flag) {
    return FollowsWorldSizeOrOutput(flag.first) && !IsShapeFlag(flag.first) &&
           flag.first != "batch_size";
  });
  return flags;
}

std::map<std::string, std::vector<double>> SamplesOf(
    const Cell& cell, absl::Span<const RunTrace> runs,
    const ThroughputConfig& config) {
  std::map<std::string, std::vector<double>> samples = {
      {"step_seconds", cell.Values(&Throughput::step_seconds)},
      {"examples_per_second", cell.Values(&Throughput::examples_per_second)}};
  // Waits for communication are unknown within captured steps.
  const bool knows_waits =
      !std::isnan(Median(cell.Values(&Throughput::comm_wait_share)));
  for (size_t index : cell.run_indices) {
    const RunTrace& run = runs[index];
    if (knows_waits) {
      samples["comm_wait_seconds"].push_back(
          MeanSeconds(run, config, &StepRecord::exposed_comm_seconds));
    }
    samples["data_wait_seconds"].push_back(
        MeanSeconds(run, config, &StepRecord::data_wait_seconds));
    if (PeakBytes(run) > 0) samples["peak_bytes"].push_back(PeakBytes(run));
  }
  return samples;
}

Configuration ConfigurationOf(const Cell& cell, absl::Span<const RunTrace> runs,
                              const ThroughputConfig& config) {
  Configuration result;
  result.unit = "run";
  result.identity = {
      {"trainer", cell.Trainer()},
      {"ranks", absl::StrCat(cell.run.world_size)},
      {"hosts", absl::StrCat(cell.hosts)},
      {"global batch", absl::StrCat(cell.global_batch)},
      {"batch per rank", BatchText(cell.rank_batch)},
      {"threads per rank", absl::StrCat(cell.run.threads_per_rank)},
      {"backend", cell.run.backend},
      {"device", DeviceKind(cell.run)}};
  result.flags = TrainerFlags(cell.run);
  result.cpus = CpuModels(runs[cell.run_indices[0]]);
  result.code_versions = cell.code_versions;
  result.samples = SamplesOf(cell, runs, config);
  return result;
}

using Identity = std::map<std::string, std::string>;

// Returns the flags of comm_bench that affect the measurement but are not part
// of a collective record; the others select rows, or the duration of their
// measurement. Omits flags with an empty, zero or false value, because not
// every binary has every flag.
Identity CallFlags(const RunRecord& run) {
  const std::set<std::string> kept = {"arrival_us", "check_collectives",
                                      "traffic", "traffic_skew"};
  Identity flags;
  for (const auto& [name, value] : run.flags) {
    if (value.empty() || value == "0" || value == "false") continue;
    const bool fake_setting =
        absl::StartsWith(name, "fake_") && name != "fake_world_size";
    const bool along = name == "axis";
    if (fake_setting || along || kept.count(name) > 0) flags[name] = value;
  }
  return flags;
}

Identity IdentityOf(const RunTrace& launch, const CollectiveRow& of_ranks) {
  const RunRecord& run = launch.ranks[0].run;
  const CollectiveRecord& row = *of_ranks.ranks[0];
  const ChosenAlgorithm chosen = AlgorithmOf(of_ranks);
  Identity identity = {{"collective", row.collective},
                       {"layer", row.layer},
                       {"bytes", absl::StrCat(row.bytes)},
                       {"elements", absl::StrCat(row.count)},
                       {"dtype", row.dtype},
                       {"operation", row.op},
                       {"ranks", absl::StrCat(GroupSize(row, run.world_size))},
                       {"world size", absl::StrCat(run.world_size)},
                       {"hosts", absl::StrCat(CountHosts(launch))},
                       {"group", absl::StrJoin(row.ranks, ",")},
                       {"root", absl::StrCat(row.root)},
                       {"in place", row.in_place ? "yes" : "no"},
                       {"in flight", absl::StrCat(row.in_flight)},
                       {"cache", row.cache},
                       {"sync", row.sync},
                       {"trips", absl::StrCat(row.calls_per_iteration)},
                       {"timing", row.timing},
                       {"graph", row.graph ? "yes" : "no"},
                       {"registered", row.registered ? "yes" : "no"},
                       {"algorithm", chosen.algorithm},
                       {"protocol", chosen.protocol},
                       {"backend", run.backend},
                       {"device", DeviceKind(run)}};
  if (!row.ranks.empty() && row.concurrent_groups > 0)
    identity["groups at once"] = absl::StrCat(row.concurrent_groups);
  // The same call, measured again in the same launch.
  if (of_ranks.turn > 0) identity["turn"] = absl::StrCat(of_ranks.turn + 1);
  return identity;
}

std::string NameOf(const RunTrace& launch, const CollectiveRow& of_ranks) {
  const RunRecord& run = launch.ranks[0].run;
  const CollectiveRecord& row = *of_ranks.ranks[0];
  const ChosenAlgorithm chosen = AlgorithmOf(of_ranks);
  std::string name = absl::StrCat(row.collective, " of ", row.bytes, " B");
  for (const std::string& part : {row.dtype, row.op}) {
    if (!part.empty()) absl::StrAppend(&name, " ", part);
  }
  const int64_t group_size = GroupSize(row, run.world_size);
  const int64_t hosts = CountHosts(launch);
  absl::StrAppend(
      &name, " on ",
      group_size != run.world_size ? absl::StrCat(group_size, " of ") : "",
      Counted(run.world_size, "rank"),
      hosts > 1 ? absl::StrCat(" of ", hosts, " hosts") : "");
  if (!row.ranks.empty()) {
    absl::StrAppend(&name, " {", absl::StrJoin(row.ranks, ","), "}");
    if (row.concurrent_groups == 1) absl::StrAppend(&name, " alone");
  }
  if (!run.backend.empty()) absl::StrAppend(&name, ", ", run.backend);
  if (row.layer != "c10d") absl::StrAppend(&name, ", ", row.layer);
  if (row.in_flight > 1) absl::StrAppend(&name, ", in flight ", row.in_flight);
  if (row.cache != "hot") absl::StrAppend(&name, ", ", row.cache);
  if (row.timing != "host") absl::StrAppend(&name, ", by ", row.timing);
  if (row.graph) absl::StrAppend(&name, ", captured");
  if (row.registered) absl::StrAppend(&name, ", registered");
  for (const std::string& part : {chosen.algorithm, chosen.protocol}) {
    if (!part.empty()) absl::StrAppend(&name, ", ", part);
  }
  return name;
}

void AddOnce(std::string text, std::vector<std::string>& texts) {
  if (absl::c_linear_search(texts, text)) return;
  texts.push_back(std::move(text));
}

// order of the rows: collective, bytes, identity, flags, CPU models
using Key = std::tuple<std::string, int64_t, Identity, Identity, std::string>;
using Configurations = std::map<Key, Configuration>;

// Adds a launch's row; returns why it is left out, or "".
std::string AddRow(const RunTrace& launch, const CollectiveRow& row,
                   CallUnit unit, Configurations& configurations) {
  const RunRecord& run = launch.ranks[0].run;
  std::string why = WhyNotOneRow(row, run.world_size);
  if (!why.empty()) return why;
  const std::vector<double> seconds = SlowestSeconds(row);
  if (seconds.empty()) return "no iteration counts";
  const Key key = {row.ranks[0]->collective, row.ranks[0]->bytes,
                   IdentityOf(launch, row), CallFlags(run), CpuModels(launch)};
  Configuration& call = configurations[key];
  std::tie(std::ignore, call.bytes, call.identity, call.flags, call.cpus) = key;
  call.name = NameOf(launch, row);
  call.ranks = GroupSize(*row.ranks[0], run.world_size);
  if (std::isnan(call.bus_factor)) call.bus_factor = row.ranks[0]->bus_factor;
  AddOnce(CodeVersion(run), call.code_versions);
  std::vector<double>& values = call.samples["call_seconds"];
  if (unit == CallUnit::kLaunch) {
    call.unit = "launch";
    values.push_back(Median(seconds));
  } else {
    call.unit = "iteration";
    values.insert(values.end(), seconds.begin(), seconds.end());
  }
  return "";
}

std::string MadeBy(const RunRecord& run) {
  return absl::StrCat(CommitText(run), ", torch ", run.versions.torch, ", ",
                      run.host.cpu_model);
}

// Adds the CPU to names that are otherwise equal.
void SeparateByCpu(std::vector<Configuration>& configurations) {
  std::map<std::string, std::set<std::string>> cpus;
  for (const Configuration& c : configurations) cpus[c.name].insert(c.cpus);
  for (Configuration& c : configurations) {
    if (cpus[c.name].size() > 1) absl::StrAppend(&c.name, ", ", c.cpus);
  }
}

}  // namespace

std::string CellLabel(const Cell& cell) {
  return absl::StrCat(cell.Name(), ", batch ", BatchText(cell.rank_batch));
}

std::vector<std::string> CellLabels(absl::Span<const Cell> cells) {
  std::vector<std::string> labels;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> values;
  for (const Cell& cell : cells) {
    labels.push_back(absl::StrCat(
        CellLabel(cell), cell.IsAblation() ? ", without communication" : ""));
    for (const auto& [flag, value] : TrainerFlags(cell.run))
      values[{labels.back(), flag}].insert(value);
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string own = labels[i];
    for (const auto& [flag, value] : TrainerFlags(cells[i].run)) {
      if (values[{own, flag}].size() == 1) continue;
      absl::StrAppend(&labels[i], ", --", flag, "=", value);
    }
  }
  return labels;
}

std::vector<Configuration> TrainerConfigurations(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config,
    std::vector<std::string>* left_out) {
  std::vector<Configuration> result;
  const std::vector<Cell> cells = GroupIntoCells(runs, config, left_out);
  const std::vector<std::string> labels = CellLabels(cells);
  for (size_t i = 0; i < cells.size(); ++i) {
    result.push_back(ConfigurationOf(cells[i], runs, config));
    result.back().name = labels[i];
  }
  return result;
}

std::vector<Configuration> CallConfigurations(
    absl::Span<const RunTrace> runs, CallUnit unit,
    std::vector<std::string>* left_out) {
  Configurations configurations;
  for (const RunTrace& launch : runs) {
    for (const CollectiveRow& row : CollectiveRows(launch)) {
      const std::string why = AddRow(launch, row, unit, configurations);
      if (why.empty()) continue;
      left_out->push_back(
          absl::StrCat(launch.source, ": ", NameOf(launch, row), ": ", why));
    }
  }
  std::vector<Configuration> result;
  for (auto& [key, configuration] : configurations) {
    result.push_back(std::move(configuration));
  }
  return result;
}

RecordSet MeasureRecordSet(absl::Span<const RunTrace> runs,
                           const RecordSetConfig& config) {
  RecordSet set;
  set.runs = runs.size();
  const std::vector<size_t> jobs = JobsOf(runs);
  set.jobs = std::set<size_t>(jobs.begin(), jobs.end()).size();
  set.left_out = TornLines(runs);
  set.configurations =
      TrainerConfigurations(runs, config.throughput, &set.left_out);
  for (Configuration& row :
       CallConfigurations(runs, config.calls, &set.left_out)) {
    set.configurations.push_back(std::move(row));
  }
  SeparateByCpu(set.configurations);
  for (const RunTrace& run : runs) {
    if (run.ranks.empty()) continue;
    set.run_ids.insert(run.ranks[0].run.run_id);
    AddOnce(MadeBy(run.ranks[0].run), set.made_by);
  }
  return set;
}

absl::Status CheckCode(const RecordSet& set) {
  for (const Configuration& configuration : set.configurations) {
    const std::string doubt = WhyNotOneCode(configuration.code_versions);
    if (doubt.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(set.path, ": the repetitions of ", configuration.name, " ",
                     doubt, "; --force compares them anyway"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordSet> LoadRecordSet(const std::string& path,
                                        const RecordSetConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<RunTrace> runs, LoadRuns(path));
  RecordSet set = MeasureRecordSet(runs, config);
  set.path = path;
  if (!set.configurations.empty()) return set;
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": nothing in these records can be compared",
      set.left_out.empty() ? "" : ": ", absl::StrJoin(set.left_out, "; ")));
}

}  // namespace rankwise
