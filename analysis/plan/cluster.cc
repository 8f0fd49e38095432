#include "analysis/plan/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr absl::string_view kMessages[] = {"ping_pong", "send_recv"};

// The costs of messages under the first of their names that was measured, "" if
// none was.
absl::string_view MessagesOf(const NetworkModel& network, bool across) {
  for (const absl::string_view name : kMessages) {
    if ((across ? network.FindAcrossHosts(name) : network.Find(name)) !=
        nullptr)
      return name;
  }
  return "";
}

CollectiveCosts Stated(const char* collective, Growth growth, double alpha,
                       double beta) {
  CostCurve curve;
  curve.world_size = 2;
  curve.line = {.alpha_seconds = alpha,
                .beta_seconds_per_byte = beta,
                .alpha_interval = {alpha, alpha},
                .beta_interval = {beta, beta}};
  return {collective, growth, /*growth_is_assumed=*/true, {curve}};
}

// Of an all-reduce that was not measured across nodes: a ring of messages, as
// slow as its slowest link. Links between nodes are shared with other lines, as
// if `shared` bytes were sent; within a node every device has its own.
double RingSeconds(const NetworkModel& network, double bytes, double shared,
                   const Line& line, CostSide side) {
  const auto ring = network.RingAcrossHosts(shared, line.ranks);
  if (!ring.has_value()) return std::numeric_limits<double>::infinity();
  const double across = SecondsAt(*ring, side);
  if (line.per_node == 1) return across;
  const auto within = network.Estimate("all_reduce", bytes, line.ranks);
  return within.ok() ? std::max(across, SecondsAt(*within, side)) : across;
}

}  // namespace

std::string ShortCoresText(const Cluster& cluster) {
  return cluster.cores_are_short
             ? "The ranks on a host have more threads than it has cores. A "
               "rank that others are waiting for may not be scheduled, so "
               "layouts with tp, cp or pp may take longer than planned.\n"
             : "";
}

NetworkModel StatedNetwork(const StatedLinks& links) {
  NetworkModel network;
  network.name = "stated";
  network.backend = "any";
  const double alpha = links.intra_latency_seconds;
  const double beta = 1 / links.intra_bytes_per_second;
  // Of two ranks, a ring's 2 (n - 1) messages of 1/n of the bytes.
  network.collectives = {Stated("all_reduce", Growth::kRing, 2 * alpha, beta),
                         Stated("ping_pong", Growth::kFlat, alpha, beta)};
  network.across_hosts = LinkAcrossHosts(
      links.inter_latency_seconds, 1 / links.inter_bytes_per_second_of_node);
  return network;
}

Line LineAlong(const Cluster& cluster, int64_t ranks, int64_t stride) {
  const int64_t fit = cluster.devices_per_node / std::max<int64_t>(stride, 1);
  return {ranks, std::clamp<int64_t>(fit, 1, ranks)};
}

absl::Status CheckNetwork(const Cluster& cluster) {
  const NetworkModel& network = cluster.network;
  const auto missing = [](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the costs of ", what,
        " are not known: record them, bazel run "
        "//comm_bench -- --nproc=2 --collectives=all_reduce,ping_pong "
        "--record=FILE"));
  };
  if (cluster.devices_per_node > 1) {
    if (network.Find("all_reduce") == nullptr)
      return missing("all_reduce within a node");
    if (MessagesOf(network, /*across=*/false).empty())
      return missing("messages within a node");
  }
  return absl::OkStatus();
}

absl::Status CheckReach(const Cluster& cluster, int64_t ranks) {
  if (ranks <= cluster.devices_per_node ||
      !MessagesOf(cluster.network, /*across=*/true).empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      ranks, " ranks need several nodes, at ", cluster.devices_per_node,
      " per node, and the costs of messages between nodes are not known: "
      "record comm_bench --collectives=all_reduce,send_recv on two hosts, or "
      "give --devices_per_node=",
      ranks));
}

double CollectiveSeconds(const Cluster& cluster, absl::string_view collective,
                         double bytes, const Line& line, CostSide side) {
  if (line.ranks == 1 || bytes == 0) return 0;
  const NetworkModel& network = cluster.network;
  const int64_t nodes = line.nodes();
  const bool across = nodes > 1;
  double share = 1;
  std::string name(collective);
  if (name == "ping_pong") {
    name = std::string(MessagesOf(network, across));
  } else if ((across ? network.FindAcrossHosts(name) : network.Find(name)) ==
                 nullptr &&
             name != "all_reduce") {
    name = "all_reduce";
    share = 0.5;
  }
  // All devices of a node send at once: each line has its part of the links.
  const double shared =
      across ? bytes * static_cast<double>(cluster.devices_per_node) /
                   static_cast<double>(line.per_node)
             : bytes;
  if (across && name == "all_reduce" &&
      network.FindAcrossHosts(name) == nullptr)
    return share * RingSeconds(network, bytes, shared, line, side);
  const auto estimate = network.Estimate(
      name, shared, collective == "ping_pong" ? 2 : line.ranks, nodes);
  if (!estimate.ok()) return std::numeric_limits<double>::infinity();
  return share * SecondsAt(*estimate, side);
}

std::vector<std::string> ClusterNames() {
  return {"a100-selene", "h100-superpod"};
}

absl::StatusOr<Cluster> NamedCluster(absl::string_view name) {
  Cluster cluster;
  cluster.name = std::string(name);
  cluster.devices_per_node = 8;
  if (name == "a100-selene") {
    cluster.device = {312e12, {0.78, 120e9}, 80e9, 1.75e12};
    cluster.network = StatedNetwork({2e-6, 235e9, 5e-6, 8 * 22e9});
    cluster.deviation = 0.08;
    return cluster;
  }
  if (name == "h100-superpod") {
    cluster.device = {989e12, {0.72, 300e9}, 80e9, 2.8e12};
    cluster.network = StatedNetwork({2e-6, 360e9, 5e-6, 8 * 44e9});
    cluster.deviation = 0.15;
    return cluster;
  }
  return absl::NotFoundError(absl::StrCat("--cluster=", name,
                                          ": neither a file nor one of ",
                                          absl::StrJoin(ClusterNames(), ", ")));
}

}  // namespace rankwise::plan
