#include "analysis/compare/call_configurations.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/statistics.h"

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

Identity IdentityOf(const RunRecord& run, const CollectiveRecord& row) {
  return {{"collective", row.collective},
          {"layer", row.layer},
          {"bytes", absl::StrCat(row.bytes)},
          {"elements", absl::StrCat(row.count)},
          {"dtype", row.dtype},
          {"operation", row.op},
          {"ranks", absl::StrCat(run.world_size)},
          {"group", absl::StrJoin(row.ranks, ",")},
          {"root", absl::StrCat(row.root)},
          {"in place", row.in_place ? "yes" : "no"},
          {"in flight", absl::StrCat(row.in_flight)},
          {"cache", row.cache},
          {"sync", row.sync},
          {"trips", absl::StrCat(row.trips)},
          {"backend", run.backend},
          {"device", run.devices.empty()
                         ? ""
                         : run.devices[0].substr(0, run.devices[0].find(':'))}};
}

std::string NameOf(const RunRecord& run, const CollectiveRecord& row) {
  std::string name = absl::StrCat(row.collective, " of ", row.bytes, " B");
  for (const std::string& part : {row.dtype, row.op}) {
    if (!part.empty()) absl::StrAppend(&name, " ", part);
  }
  absl::StrAppend(&name, " on ", run.world_size,
                  run.world_size == 1 ? " rank" : " ranks");
  if (!row.ranks.empty()) {
    absl::StrAppend(&name, " {", absl::StrJoin(row.ranks, ","), "}");
  }
  if (!run.backend.empty()) absl::StrAppend(&name, ", ", run.backend);
  if (row.layer != "c10d") absl::StrAppend(&name, ", ", row.layer);
  if (row.in_flight > 1) absl::StrAppend(&name, ", in flight ", row.in_flight);
  if (row.cache != "hot") absl::StrAppend(&name, ", ", row.cache);
  return name;
}

using Ranks = std::vector<const CollectiveRecord*>;

// Seconds of a call in every iteration that counts; empty where the ranks
// disagree about their iterations.
std::vector<double> SlowestSeconds(const Ranks& ranks) {
  const CollectiveRecord& first = *ranks[0];
  for (const CollectiveRecord* row : ranks) {
    if (row->seconds.size() != first.seconds.size()) return {};
  }
  const std::set<int64_t> late(first.late.begin(), first.late.end());
  std::vector<double> seconds;
  for (size_t i = 0; i < first.seconds.size(); ++i) {
    if (late.count(static_cast<int64_t>(i)) > 0) continue;
    double slowest = 0;
    for (const CollectiveRecord* row : ranks) {
      slowest = std::max(slowest, row->seconds[i]);
    }
    seconds.push_back(slowest / first.trips);
  }
  return seconds;
}

// A row of one launch. What a launch measured several times is as many rows.
struct LaunchRow {
  const RunRecord* run = nullptr;
  Ranks ranks;
};

// The rows of one launch by what they are and how often it came before.
std::map<std::pair<Identity, int>, LaunchRow> RowsOf(const RunTrace& launch) {
  std::map<std::pair<Identity, int>, LaunchRow> rows;
  for (const RankTrace& trace : launch.ranks) {
    std::map<Identity, int> turns;
    for (const CollectiveRecord& row : trace.collectives) {
      const Identity identity = IdentityOf(trace.run, row);
      LaunchRow& entry = rows[{identity, turns[identity]++}];
      entry.run = &launch.ranks[0].run;
      entry.ranks.push_back(&row);
    }
  }
  return rows;
}

void AddLaunch(const LaunchRow& row, const std::vector<double>& seconds,
               CallUnit unit, Configuration& configuration) {
  configuration.name = NameOf(*row.run, *row.ranks[0]);
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

}  // namespace

std::vector<Configuration> CallConfigurations(
    absl::Span<const RunTrace> runs, CallUnit unit,
    std::vector<std::string>* left_out) {
  using Key = std::tuple<Identity, Identity, int>;  // with the flags
  std::map<Key, Configuration> configurations;
  for (const RunTrace& launch : runs) {
    for (const auto& [key, row] : RowsOf(launch)) {
      const std::vector<double> seconds = SlowestSeconds(row.ranks);
      if (seconds.empty()) {
        left_out->push_back(absl::StrCat(
            launch.source, ": ", NameOf(*row.run, *row.ranks[0]),
            ": no iteration counts, or its ranks have different numbers of "
            "them"));
        continue;
      }
      const Identity flags = FlagsOf(*row.run);
      Configuration& configuration =
          configurations[{key.first, flags, key.second}];
      configuration.identity = key.first;
      if (key.second > 0) {
        configuration.identity["turn"] = absl::StrCat(key.second + 1);
      }
      configuration.flags = flags;
      AddLaunch(row, seconds, unit, configuration);
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
