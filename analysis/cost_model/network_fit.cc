// Fits curves to the records of comm_bench, and a network to the curves.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/cost_model/network_model.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Returns how a collective was measured: "float32 sum, in place, barrier".
std::string WayOf(const CollectiveRecord& record) {
  return absl::StrCat(
      record.dtype, record.op.empty() ? "" : " ", record.op,
      record.root < 0 ? "" : absl::StrCat(" root ", record.root),
      record.in_place ? ", in place" : ", out of place", ", sync ",
      record.sync);
}

// Returns "", or why the records are not the cost of a call by all ranks.
std::string WhyNotCounted(const CollectiveRecord& record) {
  if (record.layer != "c10d") {
    return absl::StrCat("went through ", record.layer, ", not c10d");
  }
  if (record.timing != "host") {
    return absl::StrCat("was timed by ", record.timing, ", not by the host");
  }
  if (record.graph) return "was captured as a graph";
  if (record.registered) return "had registered buffers";
  if (!record.ranks.empty()) return "was measured in groups of ranks";
  if (record.cache != "hot") return "started with a cold cache";
  if (record.in_flight != 1) {
    return absl::StrCat("had ", record.in_flight, " calls in flight");
  }
  return "";
}

// Returns "", or why the run's costs cannot be used: the model assumes rings
// from host to host that cross each host's link once.
std::string CheckHostOrder(const std::vector<int64_t>& hosts) {
  if (absl::c_is_sorted(hosts)) return "";
  return "did not number its ranks host by host, so that several messages "
         "share a link at the same time";
}

// Whether a row's data crossed hosts. A ping-pong is between ranks 0 and 1,
// bidirectional between 0 and 1, 2 and 3, and so on.
bool CrossesHosts(const CollectiveRecord& record,
                  const std::vector<int64_t>& hosts) {
  if (record.collective == "ping_pong") return hosts[0] != hosts[1];
  if (record.collective == "bidirectional") {
    for (size_t i = 0; i + 1 < hosts.size(); i += 2) {
      if (hosts[i] != hosts[i + 1]) return true;
    }
    return false;
  }
  return hosts.front() != hosts.back();
}

// One collective on one world size, measured in one way.
struct Way {
  CallSeconds calls;
  std::map<int64_t, std::string> algorithms;  // by bytes; of the first launch
};

struct Measured {
  std::map<std::string, Way> ways;
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

class Collector {
 public:
  explicit Collector(std::vector<std::string>* left_out)
      : left_out_(left_out) {}

  void Add(const RunTrace& run) {
    if (run.ranks.empty() || run.ranks[0].run.world_size < 2) return;
    for (const CollectiveRow& row : CollectiveRows(run)) {
      const std::string why = WhyNotAdded(run, row);
      if (why.empty()) continue;
      const CollectiveRecord& first = *row.ranks[0];
      LeaveOut(absl::StrCat(first.collective, " of ", first.bytes, " bytes on ",
                            run.ranks[0].run.world_size, " ranks"),
               why);
    }
  }

  std::vector<CollectiveSamples> Take() {
    std::vector<CollectiveSamples> all;
    for (auto& [key, measured] : measured_) {
      const auto& [collective, backend, world_size, hosts, across] = key;
      const std::string best = BestWay(collective, measured.ways);
      for (const auto& [name, way] : measured.ways) {
        if (name == best) continue;
        LeaveOut(
            absl::StrCat(collective, " on ", world_size, " ranks (", name, ")"),
            absl::StrCat("(", best, ") has more sizes"));
      }
      all.push_back({collective, backend, world_size, hosts, across,
                     std::move(measured.ways.at(best).calls),
                     measured.bus_factor});
    }
    return all;
  }

 private:
  // Adds the row and returns "", or returns why it is excluded.
  std::string WhyNotAdded(const RunTrace& run, const CollectiveRow& row) {
    const CollectiveRecord& first = *row.ranks[0];
    const RunRecord& where = run.ranks[0].run;
    std::string why = WhyNotCounted(first);
    if (why.empty()) why = WhyNotOneRow(row, where.world_size);
    const std::vector<int64_t> hosts = HostsOfRanks(run);
    if (why.empty()) why = CheckHostOrder(hosts);
    if (!why.empty()) return why;
    const std::vector<double> seconds = SlowestSeconds(row);
    if (seconds.empty()) return "has no iterations";
    const bool across = CrossesHosts(first, hosts);
    const int64_t layout_hosts = across ? 1 + *absl::c_max_element(hosts) : 1;
    Measured& measured = measured_[{first.collective, where.backend,
                                    where.world_size, layout_hosts, across}];
    const std::string name = WayOf(first);
    Way& way = measured.ways[name];
    const ChosenAlgorithm chosen = AlgorithmOf(row);
    const std::string own =
        absl::StrCat(chosen.algorithm, " ", chosen.protocol);
    const std::string& before =
        way.algorithms.try_emplace(first.bytes, own).first->second;
    if (before != own) {
      return absl::StrCat("ran \"", own, "\", and another launch \"", before,
                          "\"");
    }
    if (std::isnan(measured.bus_factor)) {
      measured.bus_factor = first.bus_factor;
    }
    std::map<int64_t, std::vector<double>>& launches =
        way.calls[static_cast<double>(first.bytes)];
    if (launches.empty()) ++sizes_of_way_[{first.collective, name}];
    std::vector<double>& all = launches[NumberOf(run, first)];
    all.insert(all.end(), seconds.begin(), seconds.end());
    return "";
  }

  // Returns the launch's number over all runs.
  int64_t NumberOf(const RunTrace& run, const CollectiveRecord& record) {
    const auto next = static_cast<int64_t>(numbers_.size());
    return numbers_
        .try_emplace({run.source, run.ranks[0].run.run_id, record.launch}, next)
        .first->second;
  }

  // Returns the one of `ways` with the most sizes, summed over world sizes.
  std::string BestWay(const std::string& collective,
                      const std::map<std::string, Way>& ways) const {
    const auto sizes = [&](const auto& way) {
      return sizes_of_way_.at({collective, way.first});
    };
    const auto fewer = [&](const auto& a, const auto& b) {
      return sizes(a) < sizes(b);
    };
    return absl::c_max_element(ways, fewer)->first;
  }

  void LeaveOut(const std::string& what, const std::string& why) {
    if (left_out_ == nullptr) return;
    left_out_->push_back(absl::StrCat(what, ": ", why));
  }

  std::vector<std::string>* const left_out_;
  // By collective, backend, world size, hosts and whether data crossed hosts.
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, bool>,
           Measured>
      measured_;
  // Number of sizes by collective and way, summed over world sizes; a size
  // counts once per world size, however many launches measured it.
  std::map<std::pair<std::string, std::string>, int> sizes_of_way_;
  // launch numbers by source, run and launch
  std::map<std::tuple<std::string, std::string, int64_t>, int64_t> numbers_;
};

absl::Status CheckOneBackend(absl::Span<const CollectiveSamples> all) {
  std::set<std::string> backends;
  for (const CollectiveSamples& samples : all) backends.insert(samples.backend);
  if (backends.size() <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the records are of several backends: ", absl::StrJoin(backends, ", "),
      "; fit one at a time"));
}

// Returns "gloo on HOST", of the first run with calls.
std::string NetworkName(absl::Span<const RunTrace> runs,
                        const BenchmarkSelection& selection,
                        const std::string& backend) {
  for (const RunTrace& run : runs) {
    if (!selection.Takes(run) || run.ranks[0].collectives.empty()) continue;
    const std::string& host = run.ranks[0].run.host.hostname;
    return host.empty() ? backend : absl::StrCat(backend, " on ", host);
  }
  return backend;
}

// Fits the samples that crossed hosts, or the others.
std::vector<CollectiveCosts> CostsOf(absl::Span<const CollectiveSamples> all,
                                     bool across_hosts,
                                     std::vector<std::string>* left_out) {
  std::map<std::string, CollectiveCosts> by_name;
  for (const CollectiveSamples& samples : all) {
    if (samples.across_hosts != across_hosts) continue;
    absl::StatusOr<CostCurve> curve = FitCostCurve(samples.calls);
    if (curve.ok()) {
      curve->world_size = samples.world_size;
      curve->hosts = samples.hosts;
      curve->bus_factor = samples.bus_factor;
      by_name[samples.collective].curves.push_back(*std::move(curve));
    } else if (left_out != nullptr) {
      left_out->push_back(absl::StrCat(samples.collective, " on ",
                                       samples.world_size,
                                       " ranks: ", curve.status().message()));
    }
  }
  std::vector<CollectiveCosts> collectives;
  for (auto& [name, costs] : by_name) {
    costs.collective = name;
    costs.growth = AssumedGrowth(name, all[0].backend, across_hosts);
    costs.growth_is_assumed =
        costs.curves.front().world_size == costs.curves.back().world_size;
    if (!costs.growth_is_assumed) {
      costs.growth = FitGrowth(costs.curves, costs.growth);
    }
    collectives.push_back(std::move(costs));
  }
  return collectives;
}

}  // namespace

bool BenchmarkSelection::Takes(const RunTrace& run) const {
  if (run.ranks.empty()) return false;
  const RunRecord& record = run.ranks[0].run;
  return (backend.empty() || record.backend == backend) &&
         (most_ranks == 0 || record.world_size <= most_ranks);
}

std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out,
    const BenchmarkSelection& selection) {
  Collector collector(left_out);
  for (const RunTrace& run : runs) {
    if (selection.Takes(run)) collector.Add(run);
  }
  return collector.Take();
}

absl::StatusOr<NetworkModel> FitNetwork(absl::Span<const RunTrace> runs,
                                        std::vector<std::string>* left_out,
                                        const BenchmarkSelection& selection) {
  const std::vector<CollectiveSamples> samples =
      CollectSamples(runs, left_out, selection);
  RETURN_IF_ERROR(CheckOneBackend(samples));
  NetworkModel network;
  network.collectives = CostsOf(samples, /*across_hosts=*/false, left_out);
  network.across_hosts = CostsOf(samples, /*across_hosts=*/true, left_out);
  if (network.collectives.empty() && network.across_hosts.empty()) {
    return absl::FailedPreconditionError(
        "the records hold no collective that two or more ranks measured at "
        "three or more sizes, through c10d and by the host's clock: run "
        "comm_bench with --nproc=2 --record=FILE");
  }
  network.backend = samples[0].backend;
  network.name = NetworkName(runs, selection, network.backend);
  return network;
}

}  // namespace rankwise
