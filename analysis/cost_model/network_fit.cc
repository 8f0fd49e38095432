#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/cost_model/collective_samples.h"
#include "analysis/cost_model/network_model.h"

namespace rankwise {
namespace {

bool HasNoSizes(const CollectiveSamples& samples) {
  return samples.sizes.front().bytes == 0 && samples.sizes.back().bytes == 0;
}

absl::StatusOr<CostCurve> CurveOf(const CollectiveSamples& samples,
                                  const CostFitConfig& config) {
  absl::StatusOr<CostCurve> curve = HasNoSizes(samples)
                                        ? ConstantCurve(samples.sizes, config)
                                        : FitCostCurve(samples.sizes, config);
  if (!curve.ok()) return curve;
  curve->collective = samples.collective;
  curve->backend = samples.backend;
  curve->world_size = samples.world_size;
  curve->bus_factor = samples.bus_factor;
  return curve;
}

absl::Status CheckOneBackend(absl::Span<const CollectiveSamples> all) {
  std::set<std::string> backends;
  for (const CollectiveSamples& samples : all) backends.insert(samples.backend);
  if (backends.size() <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the records are of several backends: ", absl::StrJoin(backends, ", "),
      "; fit one at a time"));
}

std::string NameOf(absl::Span<const RunTrace> runs,
                   const BenchmarkSelection& selection,
                   const std::string& backend) {
  for (const RunTrace& run : runs) {
    if (!selection.Takes(run) || run.ranks[0].collectives.empty()) continue;
    const std::string& host = run.ranks[0].run.host.hostname;
    return host.empty() ? backend : absl::StrCat(backend, " on ", host);
  }
  return backend;
}

std::vector<CollectiveCosts> CostsOf(absl::Span<const CollectiveSamples> all,
                                     const CostFitConfig& config,
                                     std::vector<std::string>* left_out) {
  std::map<std::string, CollectiveCosts> by_name;
  for (const CollectiveSamples& samples : all) {
    if (samples.in_flight != 1) continue;
    absl::StatusOr<CostCurve> curve = CurveOf(samples, config);
    if (curve.ok()) {
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
    costs.growth = AssumedGrowth(name, costs.curves[0].backend);
    costs.growth_is_assumed = costs.curves.size() == 1;
    if (!costs.growth_is_assumed) {
      costs.growth = FitGrowth(costs.curves, costs.growth);
    }
    collectives.push_back(std::move(costs));
  }
  return collectives;
}

}  // namespace

absl::StatusOr<NetworkModel> FitNetwork(absl::Span<const RunTrace> runs,
                                        const CostFitConfig& config,
                                        std::vector<std::string>* left_out,
                                        const BenchmarkSelection& selection) {
  const std::vector<CollectiveSamples> samples =
      CollectSamples(runs, left_out, selection);
  if (absl::Status status = CheckOneBackend(samples); !status.ok()) {
    return status;
  }
  NetworkModel network;
  network.collectives = CostsOf(samples, config, left_out);
  if (network.collectives.empty()) {
    return absl::NotFoundError(
        "the records hold no collective that two or more ranks measured at "
        "three or more sizes, through c10d and by the host's clock: run "
        "comm_bench with --nproc=2 --record=FILE");
  }
  network.backend = samples[0].backend;
  network.name = NameOf(runs, selection, network.backend);
  const absl::StatusOr<LogGP> messages = FitLogGP(samples, config);
  if (messages.ok()) network.messages.push_back(*messages);
  return network;
}

}  // namespace rankwise
