// What communication costs on one machine or cluster, at any size and world
// size: the curves that were measured (analysis/stats/cost_curve.h), and how
// they grow with the world.
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

// One collective of one world size, as the records of comm_bench hold it.
struct CollectiveSamples {
  std::string collective;
  std::string backend;
  int64_t world_size = 1;
  int64_t hosts = 1;          // across which its data was sent
  bool across_hosts = false;  // data crossed from one host to another
  CallSeconds calls;
  // CollectiveRecord::bus_factor; NaN: no record has it.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

// Which of several runs count.
struct BenchmarkSelection {
  std::string backend = "";  // "": any
  int64_t most_ranks = 0;    // 0: any number

  bool Takes(const RunTrace& run) const;
};

// The samples as docs/cost_model.md defines them, by collective, world size,
// hosts and whether they crossed hosts; each launch of each run is numbered
// separately. Appends excluded rows, with the reason, to `left_out` unless it
// is null.
std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out,
    const BenchmarkSelection& selection = {});

// How alpha and beta of a collective grow with the number of ranks n (Thakur,
// Rabenseifner and Gropp 2005, sections 3 and 4).
enum class Growth {
  kFlat,  // not at all: a message, or a fake backend
  kTree,  // alpha as ceil(log2 n), beta not
  kRing,  // alpha as n - 1, beta as (n - 1) / n
  // All-to-all across h hosts: alpha as n - 1, beta as the share of the buffer
  // that crosses a host's link, r (n - r) / n with r = n / h ranks per host.
  kExchange,
};
inline constexpr Growth kGrowths[] = {Growth::kFlat, Growth::kTree,
                                      Growth::kRing, Growth::kExchange};

absl::string_view GrowthName(Growth growth);  // "flat", "tree", ...

// The factors to which alpha and beta are proportional. Requires
// world_size > 1.
double AlphaGrowth(Growth growth, int64_t world_size);
double BetaGrowth(Growth growth, int64_t world_size, int64_t hosts = 1);

// The growth of the backend's usual algorithm: flat for messages and for the
// backend "fake"; tree for broadcast, reduce and barrier; exchange for
// all_to_all across hosts; ring for the others.
Growth AssumedGrowth(absl::string_view collective, absl::string_view backend,
                     bool across_hosts = false);

// The growth, `assumed` or one of flat, tree and ring, that best predicts the
// measured points of each curve from the curve before it, by the sum of
// |log(predicted / measured)|; `assumed` unless another is better. Requires at
// least two curves, sorted by world size.
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

// "95 %", or "range, if launches alike, growth tree to ring".
std::string IntervalKind(const std::set<std::string>& conditions);

struct CollectiveCosts {
  std::string collective;
  Growth growth = Growth::kRing;
  bool growth_is_assumed = true;  // from the backend's usual algorithm, as only
                                  // one world size was measured
  // Sorted by world size, each above 1, and hosts; not empty.
  std::vector<CostCurve> curves;
};

// Stands for every collective that has no costs of its own.
inline constexpr absl::string_view kAnyCollective = "*";

struct NetworkModel {
  std::string name;                          // "gloo on HOST"
  std::string backend;                       // "gloo", "nccl", "fake"
  std::vector<CollectiveCosts> collectives;  // by name; of ranks of one host
  // Of ranks of several hosts, whose ring crosses each host's link once each
  // way. Empty: not measured.
  std::vector<CollectiveCosts> across_hosts;

  // Null where the collective was not measured.
  const CollectiveCosts* Find(absl::string_view collective) const;
  const CollectiveCosts* FindAcrossHosts(absl::string_view collective) const;

  // The name under which messages between two ranks were measured: "ping_pong",
  // which times one message at a time, or else "send_recv"; "": neither was.
  absl::string_view MessagesName(bool across_hosts) const;

  // Of one call by `world_size` ranks: 0 for one rank. Over several `hosts`
  // what was measured there; an all_reduce that was not is a ring of messages
  // between hosts, or what it costs within one, where that is more. Between two
  // measured world sizes both curves are taken to this one by their growth, and
  // weighted by how near they are (on a logarithmic scale); beyond them the
  // nearest is. For a world size measured on several numbers of hosts, uses the
  // curve with the nearest number of ranks per host. FailedPrecondition, naming
  // what to measure, where the collective was not; InvalidArgument for bytes
  // below 0 and world sizes below 1.
  absl::StatusOr<CostEstimate> Estimate(absl::string_view collective,
                                        double bytes, int64_t world_size,
                                        int64_t hosts = 1) const;

  // The reasons why Estimate() marks these costs as extrapolated, one line
  // each; empty if it does not.
  std::vector<std::string> Extrapolations(absl::string_view collective,
                                          double bytes, int64_t world_size,
                                          int64_t hosts = 1) const;

  // Of an all_reduce that is a ring of messages between hosts; nothing where
  // these were not measured.
  std::optional<CostEstimate> RingAcrossHosts(double bytes,
                                              int64_t world_size) const;

  // Of an all-reduce in three parts: reduce-scatter within each host,
  // all-reduce across `hosts` of the parts, all-gather within. The outer two
  // take what a ring all-reduce of one host does; the parts share each host's
  // link, so that they take what an all-reduce of all bytes by one rank of each
  // host does.
  absl::StatusOr<CostEstimate> EstimateHierarchical(double bytes,
                                                    int64_t world_size,
                                                    int64_t hosts) const;
};

// Costs that are stated rather than measured: a line for two ranks, without
// error.
CollectiveCosts StatedCosts(absl::string_view collective, Growth growth,
                            double alpha_seconds, double beta_seconds_per_byte);

// A model of every call alike, whatever its kind and the world's size.
NetworkModel FlatNetwork(double alpha_seconds, double beta_seconds_per_byte);

// The costs of messages between two hosts, for NetworkModel::across_hosts:
// those of a stated link.
std::vector<CollectiveCosts> LinkAcrossHosts(double alpha_seconds,
                                             double beta_seconds_per_byte);

// From the collective records of the selected comm_bench runs, of one backend.
// Rows that CollectSamples leaves out and collectives with too few sizes are
// appended to `left_out`, with the reason, unless that is null.
// FailedPrecondition, saying what to run, where nothing is left;
// InvalidArgument where backends differ.
absl::StatusOr<NetworkModel> FitNetwork(
    absl::Span<const RunTrace> runs,
    std::vector<std::string>* left_out = nullptr,
    const BenchmarkSelection& selection = {});

// The documented form (docs/cost_model.md), and back, bit by bit. What is
// broken is refused by its JSON pointer, as are other versions.
std::string NetworkToJson(const NetworkModel& network);
absl::StatusOr<NetworkModel> NetworkFromJson(absl::string_view text);

// A table with a row per curve, and another for ranks of several hosts, where
// there are any: the measured sizes, its line with 95 %
// intervals, how far the sizes lie from the line and from what is interpolated
// between their neighbours; and how each collective grows.
std::string NetworkText(const NetworkModel& network);

// One line, alpha + beta * bytes, of the messages between two ranks, which is
// what a simulator takes.
struct MessageLine {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  std::string collective;  // what was measured: "ping_pong" or "send_recv"
};

// The curve's line between two ranks, scaled to what messages of `bytes` take:
// of ping_pong, which times one message at a time as a pipeline's link is used,
// or else of send_recv. The lines between hosts are used only if neither was
// measured within one. FailedPrecondition, saying what to measure, if there are
// none.
absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes);

// The flags by which //parallel/pipeline:show takes such a link:
// "--link=8.2e-05,1.4e-10 --bytes=65536".
std::string ShowFlags(const MessageLine& line, double bytes);

// The network file of ASTRA-sim's analytical network (version 2.2.0): a ring of
// `npus` that send with the line's latency and bandwidth. Its GB are 2^30 bytes
// (common/NetworkFunction.cpp), so the figure is 7 % below that in 10^9 bytes.
// FailedPrecondition where beta is 0, since it takes no infinite bandwidth;
// InvalidArgument below 2 npus.
absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_NETWORK_MODEL_H_
