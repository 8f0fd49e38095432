#include "analysis/cost_model/network_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Converts a median of absolute errors to the 95 % bound of normal ones.
constexpr double kErrorAt95 = 1.4826 * 1.959964;

bool IsMessage(absl::string_view collective) {
  return collective == "send_recv" || collective == "ping_pong" ||
         collective == "bidirectional";
}

// Factors of alpha and beta between two numbers of ranks.
struct GrowthFactors {
  double alpha, beta;
};

GrowthFactors FactorsTo(const CostCurve& curve, Growth growth,
                        int64_t world_size, int64_t hosts) {
  return {
      AlphaGrowth(growth, world_size) / AlphaGrowth(growth, curve.world_size),
      BetaGrowth(growth, world_size, hosts) /
          BetaGrowth(growth, curve.world_size, curve.hosts)};
}

// Returns the logarithmic distance between the curve's and the layout's ranks
// per host; 0 if the curve's hosts are unknown.
double RanksPerHostApart(const CostCurve& curve, int64_t world_size,
                         int64_t hosts) {
  if (curve.hosts == 0) return 0;
  return std::abs(std::log(static_cast<double>(world_size) * curve.hosts /
                           (static_cast<double>(curve.world_size) * hosts)));
}

// Whether an exchange was measured with a different number of ranks per host.
bool IsOtherLayout(const CostCurve& curve, Growth growth, int64_t world_size,
                   int64_t hosts) {
  return growth == Growth::kExchange &&
         RanksPerHostApart(curve, world_size, hosts) > 0;
}

CostEstimate EstimateBy(const CostCurve& curve, Growth growth, double bytes,
                        int64_t world_size, int64_t hosts) {
  const GrowthFactors factors = FactorsTo(curve, growth, world_size, hosts);
  const CostPoint nearest = curve.PointAt(bytes);
  CostEstimate estimate;
  estimate.seconds = curve.SecondsFor(bytes, factors.alpha, factors.beta);
  estimate.extrapolated =
      nearest.bytes != bytes || IsOtherLayout(curve, growth, world_size, hosts);
  estimate.conditions = curve.Conditions();
  const bool by_line = estimate.extrapolated || curve.points.empty() ||
                       world_size != curve.world_size;
  const bool measured = absl::c_any_of(
      curve.points, [bytes](const CostPoint& p) { return p.bytes == bytes; });
  const double off = kErrorAt95 * estimate.seconds *
                     (by_line    ? curve.median_relative_error
                      : measured ? 0
                                 : curve.InterpolationError());
  const auto bound = [&](double Interval::*end) {
    const double of_median =
        nearest.median_seconds > 0
            ? estimate.seconds *
                  (nearest.interval.*end / nearest.median_seconds - 1)
            : 0;
    if (!by_line) return std::hypot(of_median, off);
    const CostLine& line = curve.line;
    const double of_line = std::hypot(
        factors.alpha * (line.alpha_interval.*end - line.alpha_seconds),
        factors.beta * bytes *
            (line.beta_interval.*end - line.beta_seconds_per_byte));
    // The larger, not the sum: both include the spread of launches.
    return std::hypot(std::max(std::abs(of_median), of_line), off);
  };
  estimate.interval = {std::max(0.0, estimate.seconds - bound(&Interval::low)),
                       estimate.seconds + bound(&Interval::high)};
  return estimate;
}

double SumOfErrors(absl::Span<const CostCurve> curves, Growth growth) {
  double sum = 0;
  for (size_t i = 1; i < curves.size(); ++i) {
    const GrowthFactors factors =
        FactorsTo(curves[i - 1], growth, curves[i].world_size,
                  std::max<int64_t>(1, curves[i].hosts));
    for (const CostPoint& point : curves[i].points) {
      const double expected =
          curves[i - 1].SecondsFor(point.bytes, factors.alpha, factors.beta);
      sum += std::abs(std::log(expected / point.median_seconds));
    }
  }
  return sum;
}

std::set<std::string> Both(std::set<std::string> a,
                           const std::set<std::string>& b) {
  a.insert(b.begin(), b.end());
  return a;
}

CostEstimate Mix(const CostEstimate& a, const CostEstimate& b,
                 double share_of_b) {
  const auto mix = [share_of_b](double x, double y) {
    return (1 - share_of_b) * x + share_of_b * y;
  };
  return {mix(a.seconds, b.seconds),
          {mix(a.interval.low, b.interval.low),
           mix(a.interval.high, b.interval.high)},
          a.extrapolated || b.extrapolated,
          Both(a.conditions, b.conditions)};
}

// Estimates the cost beyond the measured world sizes.
CostEstimate ExtrapolateBy(const CollectiveCosts& costs, const CostCurve& curve,
                           double bytes, int64_t world_size, int64_t hosts) {
  CostEstimate estimate =
      EstimateBy(curve, costs.growth, bytes, world_size, hosts);
  estimate.extrapolated = true;
  // The growth is certain for messages, which involve two ranks at any world
  // size, and for stated costs.
  if (!costs.growth_is_assumed || costs.growth == Growth::kFlat ||
      curve.points.empty())
    return estimate;
  for (const Growth growth : {Growth::kTree, Growth::kRing}) {
    const Interval other =
        EstimateBy(curve, growth, bytes, world_size, hosts).interval;
    estimate.interval.low = std::min(estimate.interval.low, other.low);
    estimate.interval.high = std::max(estimate.interval.high, other.high);
  }
  estimate.conditions.insert("growth tree to ring");
  return estimate;
}

// Returns, for each measured world size in ascending order, the curve with the
// nearest number of ranks per host.
std::vector<const CostCurve*> CurvesOfLayout(const CollectiveCosts& costs,
                                             int64_t world_size,
                                             int64_t hosts) {
  std::vector<const CostCurve*> curves;
  for (const CostCurve& curve : costs.curves) {
    if (curves.empty() || curves.back()->world_size != curve.world_size) {
      curves.push_back(&curve);
    } else if (RanksPerHostApart(curve, world_size, hosts) <
               RanksPerHostApart(*curves.back(), world_size, hosts)) {
      curves.back() = &curve;
    }
  }
  return curves;
}

// Returns the one or two curves from which the costs of `world_size` ranks are
// estimated.
std::vector<const CostCurve*> CurvesFor(const CollectiveCosts& costs,
                                        int64_t world_size, int64_t hosts) {
  const std::vector<const CostCurve*> curves =
      CurvesOfLayout(costs, world_size, hosts);
  const auto after = absl::c_find_if(curves, [world_size](const CostCurve* c) {
    return c->world_size >= world_size;
  });
  if (after == curves.end()) return {curves.back()};
  if (after == curves.begin() || (*after)->world_size == world_size)
    return {*after};
  return {*std::prev(after), *after};
}

CostEstimate EstimateFrom(const CollectiveCosts& costs, double bytes,
                          int64_t world_size, int64_t hosts) {
  const std::vector<const CostCurve*> curves =
      CurvesFor(costs, world_size, hosts);
  const auto by = [&](const CostCurve& curve) {
    return EstimateBy(curve, costs.growth, bytes, world_size, hosts);
  };
  if (curves[0]->world_size == world_size) return by(*curves[0]);
  if (curves.size() == 1)
    return ExtrapolateBy(costs, *curves[0], bytes, world_size, hosts);
  const auto place = [](int64_t ranks) {
    return std::log(static_cast<double>(ranks));
  };
  const double first = place(curves[0]->world_size);
  const double share =
      (place(world_size) - first) / (place(curves[1]->world_size) - first);
  return Mix(by(*curves[0]), by(*curves[1]), share);
}

const CollectiveCosts* FindIn(const std::vector<CollectiveCosts>& collectives,
                              absl::string_view collective) {
  const CollectiveCosts* any = nullptr;
  for (const CollectiveCosts& costs : collectives) {
    if (costs.collective == collective) return &costs;
    if (costs.collective == kAnyCollective) any = &costs;
  }
  return any;
}

// Describes the scaling of costs from one measured world size to another.
std::string GrowthLine(const CollectiveCosts& costs, int64_t world_size,
                       int64_t measured) {
  const char* growth = costs.growth == Growth::kRing   ? "grown as in a ring"
                       : costs.growth == Growth::kTree ? "grown as in a tree"
                       : costs.growth == Growth::kExchange
                           ? "grown as an exchange of all ranks"
                           : "without growth";
  return absl::StrCat(costs.collective, " on ", world_size,
                      " ranks costs as much as on ", measured, ", ", growth,
                      costs.growth_is_assumed
                          ? " (assumed: one world size was measured)"
                          : " (as between the measured world sizes)");
}

// Adds two independent costs.
CostEstimate Sum(const CostEstimate& a, const CostEstimate& b) {
  const double seconds = a.seconds + b.seconds;
  const auto off = [&](double Interval::*end) {
    return std::hypot(a.interval.*end - a.seconds, b.interval.*end - b.seconds);
  };
  return {seconds,
          {std::max(0.0, seconds - off(&Interval::low)),
           seconds + off(&Interval::high)},
          a.extrapolated || b.extrapolated,
          Both(a.conditions, b.conditions)};
}

}  // namespace

std::string IntervalKind(const std::set<std::string>& conditions) {
  if (conditions.empty()) return "95 %";
  return absl::StrCat("range, if ", absl::StrJoin(conditions, ", "));
}

absl::string_view GrowthName(Growth growth) {
  constexpr absl::string_view kNames[] = {"flat", "tree", "ring", "exchange"};
  return kNames[static_cast<size_t>(growth)];
}

double AlphaGrowth(Growth growth, int64_t world_size) {
  const auto ranks = static_cast<double>(world_size);
  if (growth == Growth::kTree) return std::ceil(std::log2(ranks));
  return growth == Growth::kFlat ? 1 : ranks - 1;
}

double BetaGrowth(Growth growth, int64_t world_size, int64_t hosts) {
  const auto ranks = static_cast<double>(world_size);
  if (growth == Growth::kExchange && hosts > 1) {
    const double ranks_of_host = ranks / static_cast<double>(hosts);
    return ranks_of_host * (ranks - ranks_of_host) / ranks;
  }
  const bool divides = growth == Growth::kRing || growth == Growth::kExchange;
  return divides ? (ranks - 1) / ranks : 1;
}

Growth AssumedGrowth(absl::string_view collective, absl::string_view backend,
                     bool across_hosts) {
  if (backend == "fake" || IsMessage(collective)) return Growth::kFlat;
  if (across_hosts && absl::StartsWith(collective, "all_to_all"))
    return Growth::kExchange;
  const bool tree = collective == "broadcast" || collective == "reduce" ||
                    collective == "barrier";
  return tree ? Growth::kTree : Growth::kRing;
}

Growth FitGrowth(absl::Span<const CostCurve> curves, Growth assumed) {
  Growth best = assumed;
  double least = SumOfErrors(curves, assumed);
  for (const Growth growth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    const double sum = SumOfErrors(curves, growth);
    if (sum >= least) continue;
    least = sum;
    best = growth;
  }
  return best;
}

const CollectiveCosts* NetworkModel::Find(absl::string_view collective) const {
  return FindIn(collectives, collective);
}

const CollectiveCosts* NetworkModel::FindAcrossHosts(
    absl::string_view collective) const {
  return FindIn(across_hosts, collective);
}

absl::string_view NetworkModel::MessagesName(bool across_hosts) const {
  for (const char* name : {"ping_pong", "send_recv"}) {
    if ((across_hosts ? FindAcrossHosts(name) : Find(name)) != nullptr)
      return name;
  }
  return "";
}

absl::StatusOr<CostEstimate> NetworkModel::Estimate(
    absl::string_view collective, double bytes, int64_t world_size,
    int64_t hosts) const {
  if (!(bytes >= 0) || std::isinf(bytes) || world_size < 1 || hosts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(collective, " of ", bytes, " bytes on ", world_size,
                     " ranks: there is no such call"));
  }
  if (world_size == 1) return CostEstimate();
  const bool across = hosts > 1;
  const CollectiveCosts* const costs =
      across ? FindAcrossHosts(collective) : Find(collective);
  if (costs != nullptr && !costs->curves.empty()) {
    CostEstimate estimate = EstimateFrom(*costs, bytes, world_size, hosts);
    // Stated models are valid for any size.
    if (costs->collective == kAnyCollective) estimate.extrapolated = false;
    return estimate;
  }
  const std::optional<CostEstimate> ring =
      across && collective == "all_reduce" ? RingAcrossHosts(bytes, world_size)
                                           : std::nullopt;
  if (!ring.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the costs of ", collective, across ? " across hosts" : "", " over ",
        name.empty() ? backend : name,
        " were not measured: run comm_bench with --collectives=", collective,
        " --record=FILE", across ? " on ranks of two hosts or more" : "",
        " and fit again"));
  }
  const CollectiveCosts* const within = Find(collective);
  if (within == nullptr) return *ring;
  const CostEstimate slower = EstimateFrom(*within, bytes, world_size, 1);
  return slower.seconds > ring->seconds ? slower : *ring;
}

std::vector<std::string> NetworkModel::Extrapolations(
    absl::string_view collective, double bytes, int64_t world_size,
    int64_t hosts) const {
  const bool across = hosts > 1;
  const CollectiveCosts* const costs =
      across ? FindAcrossHosts(collective) : Find(collective);
  if (world_size == 1) return {};
  if (costs == nullptr || costs->curves.empty()) {
    return {absl::StrCat("no ", collective,
                         " across hosts was measured: it is modelled as a "
                         "ring of messages between them")};
  }
  if (costs->collective == kAnyCollective) return {};
  std::vector<std::string> lines;
  const std::vector<const CostCurve*> curves =
      CurvesFor(*costs, world_size, hosts);
  if (curves.size() == 1 && curves[0]->world_size != world_size)
    lines.push_back(GrowthLine(*costs, world_size, curves[0]->world_size));
  for (const CostCurve* chosen : curves) {
    const CostCurve& curve = *chosen;
    if (IsOtherLayout(curve, costs->growth, world_size, hosts)) {
      lines.push_back(absl::StrCat(collective, " of ", world_size, " ranks on ",
                                   hosts, " hosts costs as much as with ",
                                   curve.world_size, " on ", curve.hosts,
                                   ", scaled by the bytes that cross a host's "
                                   "link"));
    }
    if (curve.points.empty()) continue;
    const double least = curve.points.front().bytes;
    const double most = curve.points.back().bytes;
    if (bytes >= least && bytes <= most) continue;
    lines.push_back(absl::StrCat(
        "no ", collective, bytes < least ? " below " : " above ",
        FormatBytes(std::llround(bytes < least ? least : most)),
        " was measured on ", curve.world_size,
        " ranks: its cost follows the line through the measured sizes"));
  }
  return lines;
}

// Patarasuk and Yuan 2009: 2 (n - 1) successive messages of one rank's part,
// each as slow as the slowest link.
std::optional<CostEstimate> NetworkModel::RingAcrossHosts(
    double bytes, int64_t world_size) const {
  const CollectiveCosts* messages =
      FindAcrossHosts(MessagesName(/*across_hosts=*/true));
  if (messages == nullptr) return std::nullopt;
  const double n = static_cast<double>(world_size);
  CostEstimate ring = EstimateFrom(*messages, bytes / n, 2, 2);
  const double steps = 2 * (n - 1);
  ring.seconds *= steps;
  ring.interval = {ring.interval.low * steps, ring.interval.high * steps};
  ring.extrapolated = true;
  ring.conditions.insert("a ring of messages");
  return ring;
}

absl::StatusOr<CostEstimate> NetworkModel::EstimateHierarchical(
    double bytes, int64_t world_size, int64_t hosts) const {
  if (hosts < 1 || world_size % hosts != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a hierarchical all_reduce needs the same number of ranks on every "
        "host, and ",
        world_size, " ranks are on ", hosts, " hosts"));
  }
  ASSIGN_OR_RETURN(const CostEstimate within,
                   Estimate("all_reduce", bytes, world_size / hosts));
  ASSIGN_OR_RETURN(const CostEstimate across,
                   Estimate("all_reduce", bytes, hosts, hosts));
  return Sum(within, across);
}

CollectiveCosts StatedCosts(absl::string_view collective, Growth growth,
                            double alpha_seconds,
                            double beta_seconds_per_byte) {
  CostCurve curve;
  curve.world_size = 2;
  curve.line = {alpha_seconds,
                beta_seconds_per_byte,
                {alpha_seconds, alpha_seconds},
                {beta_seconds_per_byte, beta_seconds_per_byte}};
  return {std::string(collective),
          growth,
          /*growth_is_assumed=*/true,
          {curve}};
}

NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte) {
  NetworkModel network;
  network.name = "flat";
  network.backend = "fake";
  network.collectives = {StatedCosts(kAnyCollective, Growth::kFlat,
                                     alpha_seconds, beta_seconds_per_byte)};
  return network;
}

std::vector<CollectiveCosts> LinkAcrossHosts(double alpha_seconds,
                                             double beta_seconds_per_byte) {
  return {StatedCosts("ping_pong", Growth::kFlat, alpha_seconds,
                      beta_seconds_per_byte)};
}

}  // namespace rankwise
