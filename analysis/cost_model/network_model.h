// What communication costs on one machine or cluster, at any size and world
// size: the curves that were measured, and how they grow with the world.

#ifndef ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
#define ANALYSIS_COST_MODEL_NETWORK_MODEL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/run_trace.h"

namespace rankwise {

// How alpha and beta of a collective grow with the number of ranks n.
enum class Growth {
  kFlat,  // not at all: a message, or a fake backend
  kTree,  // alpha as ceil(log2 n), beta not
  kRing,  // alpha as n - 1, beta as (n - 1) / n
};

struct CostEstimate {
  double seconds = 0;
  Interval interval;          // 95 %, from those of the curve
  bool extrapolated = false;  // beyond the measured world sizes or bytes
};

struct CollectiveCosts {
  std::string collective;
  Growth growth = Growth::kRing;
  bool growth_is_assumed = true;  // one world size was measured: taken from the
                                  // backend's algorithm, not from figures
  std::vector<CostCurve> curves;  // by world size, each above 1; not empty
};

// LogGP (Alexandrov et al. 1995) of a message between two ranks.
struct LogGP {
  double latency_seconds = 0;       // L
  double overhead_seconds = 0;      // o, of the sender and of the receiver
  double gap_seconds = 0;           // g, between two small messages
  double gap_seconds_per_byte = 0;  // G
  Interval latency_interval, overhead_interval, gap_interval,
      gap_per_byte_interval;
};

struct NetworkModel {
  std::string name;                          // "gloo on HOST"
  std::string backend;                       // "gloo", "nccl", "fake"
  std::vector<CollectiveCosts> collectives;  // by name
  std::vector<LogGP> messages;               // none or one

  // Of one call by `world_size` ranks: 0 for one rank. NotFound, naming what
  // to measure, where the collective was not.
  absl::StatusOr<CostEstimate> Estimate(absl::string_view collective,
                                        double bytes, int64_t world_size) const;
};

// A model of every call alike, whatever its kind and the world's size.
NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte);

// From the collective records of comm_bench runs, of one backend. Rows on which
// ranks disagree, in_flight above 1 (but for LogGP), or that started cold, are
// passed over. NotFound where none is left.
absl::StatusOr<NetworkModel> FitNetwork(absl::Span<const RunTrace> runs,
                                        const CostFitConfig& config = {});

// The documented form (docs/cost_model.md), and back.
std::string NetworkToJson(const NetworkModel& network);
absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
