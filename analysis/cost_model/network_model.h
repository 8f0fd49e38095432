// What communication costs on one machine or cluster, at any size and world
// size: the curves that were measured, and how they grow with the world.
#ifndef RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
#define RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/cost_model/collective_samples.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/runs/run_trace.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// How alpha and beta of a collective grow with the number of ranks n: the
// shapes of Thakur, Rabenseifner and Gropp 2005, sections 3 and 4.
enum class Growth {
  kFlat,  // not at all: a message, or a fake backend
  kTree,  // alpha as ceil(log2 n), beta not
  kRing,  // alpha as n - 1, beta as (n - 1) / n
};

absl::string_view GrowthName(Growth growth);  // "flat", "tree", "ring"

// What alpha and beta are proportional to. Requires world_size > 1.
double AlphaGrowth(Growth growth, int64_t world_size);
double BetaGrowth(Growth growth, int64_t world_size);

// What the backend's usual algorithm does: flat for messages and for the
// backend "fake"; tree for broadcast, reduce and barrier; ring for the others.
Growth AssumedGrowth(absl::string_view collective, absl::string_view backend);

// The growth that takes each curve to the measured points of the next with the
// least sum of |log(predicted / measured)|; `assumed` where others are no
// better. Curves by world size, at least two.
Growth FitGrowth(absl::Span<const CostCurve> curves, Growth assumed);

struct CostEstimate {
  double seconds = 0;
  // 95 %: the interval of the measured medians and how far they lie from what
  // is interpolated between them; beyond the measured sizes and world sizes
  // those of the curve's alpha and beta too, taken as independent.
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
// other records do not matter. Rows that CollectSamples passes over and
// collectives with too few sizes are appended to `left_out`, with the reason,
// unless that is null. The growth is chosen by FitGrowth where two or more
// world sizes were measured. NotFound, saying what to run, where nothing is
// left; InvalidArgument where backends differ.
absl::StatusOr<NetworkModel> FitNetwork(
    absl::Span<const RunTrace> runs,
    std::vector<std::string>* left_out = nullptr,
    const BenchmarkSelection& selection = {});

// The documented form (docs/cost_model.md), and back, bit by bit. What is
// broken is refused by the name of the field, as are other versions.
std::string NetworkToJson(const NetworkModel& network);
absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
