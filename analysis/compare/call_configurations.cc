#include "analysis/compare/call_configurations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/cell.h"
#include "analysis/collective_rows.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

using Identity = std::map<std::string, std::string>;

// The flags of comm_bench that change what is measured without being part of a
// collective record; the others choose rows, or say how long to measure them.
Identity FlagsOf(const RunRecord& run) {
  const std::set<std::string> kept = {"arrival_us", "check_collectives",
                                      "direct_all_reduce_bytes", "traffic",
                                      "traffic_skew"};
  Identity flags;
  for (const auto& [name, value] : run.flags) {
    const bool pretends =
        absl::StartsWith(name, "fake_") && name != "fake_world_size";
    if (pretends || kept.count(name) > 0) flags[name] = value;
  }
  return flags;
}

Identity IdentityOf(const RunRecord& run, const CollectiveRow& of_ranks) {
  const CollectiveRecord& row = *of_ranks.ranks[0];
  const ChosenAlgorithm chosen = AlgorithmOf(of_ranks);
  return {{"collective", row.collective},
          {"layer", row.layer},
          {"bytes", absl::StrCat(row.bytes)},
          {"elements", absl::StrCat(row.count)},
          {"dtype", row.dtype},
          {"operation", row.op},
          {"ranks", absl::StrCat(GroupSize(row, run.world_size))},
          {"world size", absl::StrCat(run.world_size)},
          {"group", absl::StrJoin(row.ranks, ",")},
          {"root", absl::StrCat(row.root)},
          {"in place", row.in_place ? "yes" : "no"},
          {"in flight", absl::StrCat(row.in_flight)},
          {"cache", row.cache},
          {"sync", row.sync},
          {"trips", absl::StrCat(row.trips)},
          {"timing", row.timing},
          {"graph", row.graph ? "yes" : "no"},
          {"registered", row.registered ? "yes" : "no"},
          {"algorithm", chosen.algorithm},
          {"protocol", chosen.protocol},
          {"backend", run.backend},
          {"device", DeviceKind(run)}};
}

std::string NameOf(const RunRecord& run, const CollectiveRow& of_ranks) {
  const CollectiveRecord& row = *of_ranks.ranks[0];
  const ChosenAlgorithm chosen = AlgorithmOf(of_ranks);
  std::string name = absl::StrCat(row.collective, " of ", row.bytes, " B");
  for (const std::string& part : {row.dtype, row.op}) {
    if (!part.empty()) absl::StrAppend(&name, " ", part);
  }
  const int64_t group_size = GroupSize(row, run.world_size);
  absl::StrAppend(&name, " on ", group_size);
  if (group_size != run.world_size) {
    absl::StrAppend(&name, " of ", run.world_size);
  }
  absl::StrAppend(&name, run.world_size == 1 ? " rank" : " ranks");
  if (!row.ranks.empty()) {
    absl::StrAppend(&name, " {", absl::StrJoin(row.ranks, ","), "}");
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

void AddLaunch(const std::vector<double>& seconds, CallUnit unit,
               Configuration& configuration) {
  std::vector<MetricSample>& samples = configuration.samples;
  if (samples.empty()) samples.push_back({"call_seconds", {}});
  std::vector<double>& values = samples[0].values;
  if (unit == CallUnit::kIteration) {
    values.insert(values.end(), seconds.begin(), seconds.end());
    configuration.unit = "iteration";
  } else {
    values.push_back(Median(seconds));
    configuration.unit = "launch";
  }
}

// Identity, flags, turn, kinds of CPU.
using Key = std::tuple<Identity, Identity, int, std::string>;
using Configurations = std::map<Key, Configuration>;

// Adds a launch's row; else why it is left out.
std::string AddRow(const RunTrace& launch, const CollectiveRow& row,
                   CallUnit unit, Configurations& configurations) {
  const RunRecord& run = launch.ranks[0].run;
  std::string why = WhyNotOneRow(row, run.world_size);
  if (!why.empty()) return why;
  const std::vector<double> seconds = SlowestSeconds(row);
  if (seconds.empty()) return "no iteration counts";
  const Identity identity = IdentityOf(run, row);
  const Identity flags = FlagsOf(run);
  Configuration& configuration =
      configurations[{identity, flags, row.turn, CpuModels(launch)}];
  configuration.name = NameOf(run, row);
  if (std::isnan(configuration.bus_factor)) {
    configuration.bus_factor = row.ranks[0]->bus_factor;
  }
  configuration.identity = identity;
  if (row.turn > 0) {
    configuration.identity["turn"] = absl::StrCat(row.turn + 1);
  }
  configuration.flags = flags;
  configuration.cpus = CpuModels(launch);
  std::vector<std::string>& versions = configuration.code_versions;
  const std::string version = CodeVersion(run);
  if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
    versions.push_back(version);
  }
  AddLaunch(seconds, unit, configuration);
  return "";
}

}  // namespace

std::vector<Configuration> CallConfigurations(
    absl::Span<const RunTrace> runs, CallUnit unit,
    std::vector<std::string>* left_out) {
  Configurations configurations;
  for (const RunTrace& launch : runs) {
    for (const CollectiveRow& row : CollectiveRows(launch)) {
      const std::string why = AddRow(launch, row, unit, configurations);
      if (why.empty()) continue;
      left_out->push_back(absl::StrCat(
          launch.source, ": ", NameOf(launch.ranks[0].run, row), ": ", why));
    }
  }
  std::vector<Configuration> result;
  for (auto& [key, configuration] : configurations) {
    result.push_back(std::move(configuration));
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Configuration& a, const Configuration& b) {
                     const auto size = [](const Configuration& c) {
                       return std::stoll(c.identity.at("bytes"));
                     };
                     const auto& left = a.identity.at("collective");
                     const auto& right = b.identity.at("collective");
                     return left != right ? left < right : size(a) < size(b);
                   });
  return result;
}

}  // namespace rankwise
