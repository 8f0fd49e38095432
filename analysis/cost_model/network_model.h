// What communication costs on one machine or cluster, at any size and world
// size: the curves that were measured, and how they grow with the world.

#ifndef ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
#define ANALYSIS_COST_MODEL_NETWORK_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/cost_model/collective_samples.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/cost_model/growth.h"
#include "analysis/cost_model/loggp.h"
#include "analysis/run_trace.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct CostEstimate {
  double seconds = 0;
  // 95 %, of a size's median: from the intervals of the curve's alpha and beta,
  // taken as independent, and how far the measured sizes lie from it.
  Interval interval;
  bool extrapolated = false;  // beyond the measured world sizes or bytes
};

struct CollectiveCosts {
  std::string collective;
  Growth growth = Growth::kRing;
  bool growth_is_assumed = true;  // one world size was measured: taken from the
                                  // backend's algorithm, not from figures
  std::vector<CostCurve> curves;  // by world size, each above 1; not empty
};

// Stands for every collective that has no costs of its own.
inline constexpr absl::string_view kAnyCollective = "*";

struct NetworkModel {
  std::string name;                          // "gloo on HOST"
  std::string backend;                       // "gloo", "nccl", "fake"
  std::vector<CollectiveCosts> collectives;  // by name
  std::vector<LogGP> messages;               // none or one

  // Null where the collective was not measured.
  const CollectiveCosts* Find(absl::string_view collective) const;

  // Of one call by `world_size` ranks: 0 for one rank. Between two measured
  // world sizes both curves are taken to this one by their growth, and weighted
  // by how near they are (on a logarithmic scale); beyond them the nearest is.
  // NotFound, naming what to measure, where the collective was not;
  // InvalidArgument for bytes below 0 and world sizes below 1.
  absl::StatusOr<CostEstimate> Estimate(absl::string_view collective,
                                        double bytes, int64_t world_size) const;
};

// A model of every call alike, whatever its kind and the world's size.
NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte);

// From the collective records of the selected comm_bench runs, of one backend;
// other records do not matter. Rows that CollectSamples passes over, calls in
// flight with others (but for LogGP) and collectives with too few sizes are
// appended to `left_out`, with the reason, unless that is null. The growth is
// chosen by FitGrowth where two or more world sizes were measured. NotFound,
// saying what to run, where nothing is left; InvalidArgument where backends
// differ.
absl::StatusOr<NetworkModel> FitNetwork(
    absl::Span<const RunTrace> runs, const CostFitConfig& config = {},
    std::vector<std::string>* left_out = nullptr,
    const BenchmarkSelection& selection = {});

// The documented form (docs/cost_model.md), and back, bit by bit. What is
// broken is refused by the name of the field, as are other versions.
std::string NetworkToJson(const NetworkModel& network);
absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
