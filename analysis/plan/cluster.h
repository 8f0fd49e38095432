// The machine to plan for: a device's speed and memory, and the cost of
// communication within a node and across nodes.
#ifndef RANKWISE_ANALYSIS_PLAN_CLUSTER_H_
#define RANKWISE_ANALYSIS_PLAN_CLUSTER_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/recordings.h"

namespace rankwise::plan {

// Fraction of its peak that a device reaches in a matrix product.
struct EfficiencyCurve {
  double most = 1;   // limit for large products
  double scale = 0;  // FLOPs of a product that reaches 71 % of it

  double At(double flops) const {
    return scale == 0 ? most : most * std::sqrt(flops / (flops + scale));
  }
};

struct Device {
  double peak_flops = 0;  // per second, in the training precision
  EfficiencyCurve efficiency;
  double memory_bytes = 0;  // 0 if unknown
  // Memory bandwidth of kernels other than matrix products. Infinite if their
  // time is part of `efficiency`, as when that is measured over whole steps.
  double memory_bytes_per_second = std::numeric_limits<double>::infinity();
  // fixed cost of each kernel
  double kernel_seconds = 0;
  bool is_cpu = false;  // otherwise a GPU
};

struct Cluster {
  std::string name;
  Device device;
  int64_t devices_per_node = 1;
  // Costs within a node; `across_hosts` if all of a node's devices share its
  // links to others, so that a message of a single device can use all of them.
  NetworkModel network;
  // Relative speed of computation while communication is in flight: 1 if
  // separate hardware communicates; 0 if the same cores do both, so that
  // communication takes its full time even if it overlaps.
  double speed_during_communication = 1;
  // Slowdown of `device` relative to a rank alone, because all ranks compute at
  // the same time on shared cores. Waiting ranks leave the cores to the others.
  double slowdown_by_others = 1;
  // Whether the ranks on a host have more threads than it has cores.
  // Predictions exclude the time a rank waits for a core.
  bool cores_are_short = false;
  // relative standard deviation of predicted over measured steps
  double deviation = 0.1;
};

// Returns "" unless `cores_are_short`; else a warning naming the layouts that
// may be underestimated.
std::string ShortCoresText(const Cluster& cluster);

// Communicating ranks, placed on nodes in order.
struct Line {
  int64_t ranks = 1;
  int64_t per_node = 1;  // number of these ranks on one node

  int64_t nodes() const { return (ranks + per_node - 1) / per_node; }
};

// Returns the line of `ranks` along an axis whose neighbours are `stride` ranks
// apart.
Line LineAlong(const Cluster& cluster, int64_t ranks, int64_t stride);

// Fails unless `cluster` has the costs that CollectiveSeconds needs.
// FailedPrecondition names the missing ones.
absl::Status CheckNetwork(const Cluster& cluster);

// FailedPrecondition, with a remedy, if `ranks` need several nodes and messages
// between nodes were not measured.
absl::Status CheckReach(const Cluster& cluster, int64_t ranks);

// Returns the duration of a call by all ranks of `line`, while the nodes' other
// devices make the same call in their own lines and share the nodes' links:
// all_reduce, all_gather and reduce_scatter (bytes: the whole buffer), or
// ping_pong, a message between neighbours. Unmeasured collectives take half of
// an all_reduce. Requires CheckNetwork.
double CollectiveSeconds(const Cluster& cluster, absl::string_view collective,
                         double bytes, const Line& line, CostSide side);

// Links as stated by their makers or a benchmark. A ring among n ranks of a
// node reaches `intra_bytes_per_second` as bus bandwidth.
struct StatedLinks {
  double intra_latency_seconds = 0, intra_bytes_per_second = 0;  // per message
  double inter_latency_seconds = 0;
  double inter_bytes_per_second_of_node = 0;  // all of its devices together
};

NetworkModel StatedNetwork(const StatedLinks& links);

// Returns "a100-selene", "h100-superpod". Sources of their figures:
// docs/plan.md.
std::vector<std::string> ClusterNames();
// NotFound lists the known names.
absl::StatusOr<Cluster> NamedCluster(absl::string_view name);

// Parses the documented form (docs/plan.md, "The cluster's file").
// InvalidArgument names the field by its JSON pointer.
absl::StatusOr<Cluster> ClusterFromJson(absl::string_view text);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_CLUSTER_H_
