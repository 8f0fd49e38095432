// Communication cost on one machine or cluster, for any size and world size:
// measured curves (analysis/stats/cost_curve.h), and their growth with the
// world size.
#ifndef RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
#define RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"
#include "analysis/stats/cost_curve.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// Recorded comm_bench calls of one collective on one world size.
struct CollectiveSamples {
  std::string collective;
  std::string backend;
  int64_t world_size = 1;
  int64_t hosts = 1;          // across which its data was sent
  bool across_hosts = false;  // data crossed from one host to another
  CallSeconds calls;
  // CollectiveRecord::bus_factor; NaN if no record has it
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

// Selects runs by backend and number of ranks.
struct BenchmarkSelection {
  std::string backend = "";  // "" selects any
  int64_t most_ranks = 0;    // 0 selects any

  bool Takes(const RunTrace& run) const;
};

// Returns the samples defined in docs/cost_model.md, by collective, world size,
// hosts and whether data crossed hosts; numbers each launch of each run
// separately. Appends excluded rows with their reason to `left_out` unless it
// is nullptr.
std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out,
    const BenchmarkSelection& selection = {});

// Growth of a collective's alpha and beta with the number of ranks n (Thakur,
// Rabenseifner and Gropp 2005, sections 3 and 4).
enum class Growth {
  kFlat,  // constant: a message, or the fake backend
  kTree,  // alpha as ceil(log2 n), beta constant
  kRing,  // alpha as n - 1, beta as (n - 1) / n
  // All-to-all across h hosts: alpha as n - 1, beta as the share of the buffer
  // that crosses a host's link, r (n - r) / n with r = n / h ranks per host.
  kExchange,
};
inline constexpr Growth kGrowths[] = {Growth::kFlat, Growth::kTree,
                                      Growth::kRing, Growth::kExchange};

absl::string_view GrowthName(Growth growth);  // "flat", "tree", ...

// Return the factors to which alpha and beta are proportional. Require
// world_size > 1.
double AlphaGrowth(Growth growth, int64_t world_size);
double BetaGrowth(Growth growth, int64_t world_size, int64_t hosts = 1);

// Returns the growth of the backend's usual algorithm: flat for messages and
// for the backend "fake"; tree for broadcast, reduce and barrier; exchange for
// all_to_all across hosts; ring for the others.
Growth AssumedGrowth(absl::string_view collective, absl::string_view backend,
                     bool across_hosts = false);

// Returns the growth, `assumed` or one of flat, tree and ring, that best
// predicts the measured points of each curve from the previous curve, by the
// sum of |log(predicted / measured)|; `assumed` unless another is better.
// Requires at least two curves, sorted by world size.
Growth FitGrowth(absl::Span<const CostCurve> curves, Growth assumed);

struct CostEstimate {
  double seconds = 0;
  // Combines the interval of the measured medians with the interpolation error;
  // beyond the measured sizes and world sizes, the larger of that interval and
  // the one of alpha and beta with the line's median error. If the growth is
  // assumed, it also covers the intervals of a tree and of a ring.
  Interval interval;
  bool extrapolated = false;  // beyond the measured world sizes or bytes
  // Conditions under which the interval holds, such as "launches alike". If not
  // empty, it is a range and not a 95 % interval.
  std::set<std::string> conditions = {};
};

// Returns "95 %", or "range, if launches alike, growth tree to ring".
std::string IntervalKind(const std::set<std::string>& conditions);

struct CollectiveCosts {
  std::string collective;
  Growth growth = Growth::kRing;
  bool growth_is_assumed = true;  // from the backend's usual algorithm, as only
                                  // one world size was measured
  // sorted by world size (each above 1) and hosts; not empty
  std::vector<CostCurve> curves;
};

// Name of the costs for all collectives without their own.
inline constexpr absl::string_view kAnyCollective = "*";

struct NetworkModel {
  std::string name;                          // "gloo on HOST"
  std::string backend;                       // "gloo", "nccl", "fake"
  std::vector<CollectiveCosts> collectives;  // by name; of ranks of one host
  // Ranks of several hosts, in a ring that crosses each host's link once in
  // each direction. Empty if not measured.
  std::vector<CollectiveCosts> across_hosts;

  // Return nullptr if the collective was not measured.
  const CollectiveCosts* Find(absl::string_view collective) const;
  const CollectiveCosts* FindAcrossHosts(absl::string_view collective) const;

  // Returns the name of the measured messages between two ranks: "ping_pong",
  // which times one message at a time, or else "send_recv"; "" if neither was
  // measured.
  absl::string_view MessagesName(bool across_hosts) const;

  // Estimates one call by `world_size` ranks (0 seconds for one rank). Across
  // `hosts`, uses the measurements across hosts; an all_reduce without any is
  // the larger of a ring of messages between hosts and its cost within one.
  // Between two measured world sizes, scales both curves by their growth and
  // weights them by proximity on a logarithmic scale; beyond them, uses the
  // nearest. If a world size was measured on several numbers of hosts, uses the
  // curve with the nearest number of ranks per host. FailedPrecondition, naming
  // the missing measurement, if the collective was not measured;
  // InvalidArgument for bytes below 0 and world sizes below 1.
  absl::StatusOr<CostEstimate> Estimate(absl::string_view collective,
                                        double bytes, int64_t world_size,
                                        int64_t hosts = 1) const;

  // The reasons why Estimate() marks these costs as extrapolated, one line
  // each; empty if it does not.
  std::vector<std::string> Extrapolations(absl::string_view collective,
                                          double bytes, int64_t world_size,
                                          int64_t hosts = 1) const;

  // Estimates an all_reduce as a ring of messages between hosts; nullopt if
  // these were not measured.
  std::optional<CostEstimate> RingAcrossHosts(double bytes,
                                              int64_t world_size) const;

  // Estimates a hierarchical all-reduce: reduce-scatter within each host,
  // all-reduce of the parts across `hosts`, all-gather within. The first and
  // last together cost as much as a ring all-reduce of one host; the parts
  // share each host's link, so the middle costs as much as an all-reduce of all
  // bytes by one rank per host.
  absl::StatusOr<CostEstimate> EstimateHierarchical(double bytes,
                                                    int64_t world_size,
                                                    int64_t hosts) const;
};

// Returns stated rather than measured costs: a line for two ranks, without
// error.
CollectiveCosts StatedCosts(absl::string_view collective, Growth growth,
                            double alpha_seconds, double beta_seconds_per_byte);

// Returns a model with the same cost for every kind of call and world size.
NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte);

// Returns the costs of messages between two hosts over a stated link, for
// NetworkModel::across_hosts.
std::vector<CollectiveCosts> LinkAcrossHosts(double alpha_seconds,
                                             double beta_seconds_per_byte);

// Fits the collective records of the selected comm_bench runs, of one backend.
// Appends rows excluded by CollectSamples, and collectives with too few sizes,
// with their reason to `left_out` unless it is nullptr. FailedPrecondition,
// with the missing run, if nothing is left; InvalidArgument if backends differ.
absl::StatusOr<NetworkModel> FitNetwork(
    absl::Span<const RunTrace> runs,
    std::vector<std::string>* left_out = nullptr,
    const BenchmarkSelection& selection = {});

// Convert to the documented form (docs/cost_model.md) and back, bit-exactly.
// Errors name the JSON pointer of the invalid value; other versions are
// rejected.
std::string NetworkToJson(const NetworkModel& network);
absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text);

// Returns a table with a row per curve, and another for ranks of several hosts,
// if any: measured sizes, line with 95 % intervals, deviation of the sizes from
// the line and from interpolation between their neighbours; and the growth of
// each collective.
std::string NetworkText(const NetworkModel& network);

// A line, alpha + beta * bytes, for messages between two ranks, as simulators
// require.
struct MessageLine {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  std::string collective;  // measured collective: "ping_pong" or "send_recv"
};

// Returns the curve's line between two ranks, scaled to match messages of
// `bytes`: of ping_pong, which times one message at a time as a pipeline uses
// its link, or else of send_recv. Uses lines between hosts only if neither was
// measured within one. FailedPrecondition, with the missing measurement, if
// there are none.
absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes);

// Returns the flags of such a link for //parallel/pipeline:show:
// "--link=8.2e-05,1.4e-10 --bytes=65536".
std::string ShowFlags(const MessageLine& line, double bytes);

// Returns the network file for ASTRA-sim's analytical network (version 2.2.0):
// a ring of `npus` with the line's latency and bandwidth. Its GB are 2^30 bytes
// (common/NetworkFunction.cpp), so the figure is 7 % below that in 10^9 bytes.
// FailedPrecondition if beta is 0, since it supports no infinite bandwidth;
// InvalidArgument below 2 npus.
absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
