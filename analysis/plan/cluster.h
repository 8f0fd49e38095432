// Where training would run: what a device computes and holds, and what
// communication costs within a node and across nodes.
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

// The share of its peak that a device reaches in a matrix product.
struct EfficiencyCurve {
  double most = 1;   // of a product without end
  double scale = 0;  // FLOPs of a product that reaches 71 % of it

  double At(double flops) const {
    return scale == 0 ? most : most * std::sqrt(flops / (flops + scale));
  }
};

struct Device {
  double peak_flops = 0;  // per second, in the precision of training
  EfficiencyCurve efficiency;
  double memory_bytes = 0;  // 0: not known
  // Memory bandwidth of kernels other than matrix products. Infinite if their
  // time is part of `efficiency`, as when that is measured over whole steps.
  double memory_bytes_per_second = std::numeric_limits<double>::infinity();
  // Fixed cost of each kernel, whatever it computes.
  double kernel_seconds = 0;
  bool is_cpu = false;  // else a GPU
};

struct Cluster {
  std::string name;
  Device device;
  int64_t devices_per_node = 1;
  // Within a node; `across_hosts` where all of a node's devices share its links
  // to others, so that a message of one device alone has all of them.
  NetworkModel network;
  // The speed that computing keeps while communication is in flight, as a
  // share: 1 where something else carries it; 0 where the same cores do both,
  // so that it takes its time even where an engine would hide it.
  double speed_during_communication = 1;
  // How much longer `device` computes than a rank alone, because all ranks
  // compute at the same time on cores that they share. What waits leaves the
  // cores to the others.
  double slowdown_by_others = 1;
  // The ranks on a host have more threads than it has cores. Predictions leave
  // out the time a rank waits for a core.
  bool cores_are_short = false;
  // Standard deviation of predicted over measured steps, as a share.
  double deviation = 0.1;
};

// Empty unless `cores_are_short`; else a warning naming the layouts that may be
// underestimated.
std::string ShortCoresText(const Cluster& cluster);

// Ranks that communicate, placed on nodes in order.
struct Line {
  int64_t ranks = 1;
  int64_t per_node = 1;  // of these ranks on one node

  int64_t nodes() const { return (ranks + per_node - 1) / per_node; }
};

// The line along an axis of `ranks`, neighbours of which are `stride` ranks
// apart.
Line LineAlong(const Cluster& cluster, int64_t ranks, int64_t stride);

// Checks that the costs CollectiveSeconds needs are known on `cluster`.
// FailedPrecondition names those that were not measured.
absl::Status CheckNetwork(const Cluster& cluster);

// FailedPrecondition, saying what to do, where `ranks` need several nodes and
// messages between these were not measured.
absl::Status CheckReach(const Cluster& cluster, int64_t ranks);

// Of a call by all ranks of `line`, while the other devices of their nodes do
// the same in lines of their own and share the nodes' links: all_reduce,
// all_gather and reduce_scatter (bytes: the whole buffer), or ping_pong, a
// message between neighbours. Collectives that were not measured take half of
// an all_reduce. Requires CheckNetwork.
double CollectiveSeconds(const Cluster& cluster, absl::string_view collective,
                         double bytes, const Line& line, CostSide side);

// Links as their makers or a benchmark state them. A ring among n ranks of a
// node reaches `intra_bytes_per_second` as bus bandwidth.
struct StatedLinks {
  double intra_latency_seconds = 0, intra_bytes_per_second = 0;  // of a message
  double inter_latency_seconds = 0;
  double inter_bytes_per_second_of_node = 0;  // of all its devices together
};

NetworkModel StatedNetwork(const StatedLinks& links);

// "a100-selene", "h100-superpod": docs/plan.md has the sources of the numbers.
std::vector<std::string> ClusterNames();
// NotFound lists the known names.
absl::StatusOr<Cluster> NamedCluster(absl::string_view name);

// The documented form (docs/plan.md, "The cluster's file"). InvalidArgument
// names the field by its JSON pointer.
absl::StatusOr<Cluster> ClusterFromJson(absl::string_view text);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_CLUSTER_H_
