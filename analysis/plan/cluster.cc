// Makes the JSON library's errors include the JSON pointer of the value.
#define JSON_DIAGNOSTICS 1

#include "analysis/plan/cluster.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/text/json_keys.h"
#include "nlohmann/json.hpp"

namespace rankwise::plan {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "rankwise cluster";
constexpr int kVersion = 1;

// Throws an exception that names the requirement, unless `ok`.
void Require(bool ok, const Json& json, const char* what) {
  if (!ok) throw Json::other_error::create(599, what, &json);
}

// Reads a number in the file's units. Real clusters have no values outside this
// range, which could make results infinite.
double Positive(const Json& json, const char* key) {
  constexpr double kLeast = 1e-9, kMost = 1e9;
  const Json& value = json.at(key);
  Require(value.is_number() && value.get<double>() >= kLeast &&
              value.get<double>() <= kMost,
          value, "must be a number above 0, from 1e-9 to 1e9");
  return value.get<double>();
}

// The name is printed, so control characters are rejected.
std::string NameOf(const Json& json) {
  if (!json.contains("name")) return "cluster";
  const Json& name = json.at("name");
  std::string text = name.get<std::string>();
  Require(absl::c_none_of(text, absl::ascii_iscntrl), name,
          "must not hold control characters");
  return text;
}

Device DeviceOf(const Json& json) {
  Device device;
  device.peak_flops = 1e12 * Positive(json, "peak_tflops");
  device.memory_bytes = 1e9 * Positive(json, "memory_gb");
  if (json.contains("memory_gb_per_second"))
    device.memory_bytes_per_second =
        1e9 * Positive(json, "memory_gb_per_second");
  RefuseUnknownKeys(
      json, {"peak_tflops", "memory_gb", "memory_gb_per_second", "efficiency"});
  if (!json.contains("efficiency")) return device;
  const Json& efficiency = json.at("efficiency");
  device.efficiency.most = Positive(efficiency, "most");
  Require(device.efficiency.most <= 1, efficiency.at("most"),
          "must be at most 1");
  if (efficiency.contains("scale_gflop"))
    device.efficiency.scale = 1e9 * Positive(efficiency, "scale_gflop");
  RefuseUnknownKeys(efficiency, {"most", "scale_gflop"});
  return device;
}

StatedLinks LinksOf(const Json& json) {
  const Json &intra = json.at("intra_node"), &inter = json.at("inter_node");
  const StatedLinks links = {1e-6 * Positive(intra, "latency_us"),
                             1e9 * Positive(intra, "gb_per_second"),
                             1e-6 * Positive(inter, "latency_us"),
                             1e9 * Positive(inter, "gb_per_second_of_node")};
  RefuseUnknownKeys(intra, {"latency_us", "gb_per_second"});
  RefuseUnknownKeys(inter, {"latency_us", "gb_per_second_of_node"});
  return links;
}

Cluster ClusterOf(const Json& json) {
  Cluster cluster;
  cluster.name = NameOf(json);
  const double devices = Positive(json, "devices_per_node");
  Require(devices == std::floor(devices) && devices <= 1 << 20,
          json.at("devices_per_node"), "must be a whole number, up to 1048576");
  cluster.devices_per_node = static_cast<int64_t>(devices);
  cluster.device = DeviceOf(json.at("device"));
  if (json.contains("relative_error"))
    cluster.deviation = Positive(json, "relative_error");
  cluster.network = StatedNetwork(LinksOf(json));
  RefuseUnknownKeys(json,
                    {"format", "version", "name", "devices_per_node", "device",
                     "intra_node", "inter_node", "relative_error"});
  return cluster;
}

bool IsClusterFile(const Json& json) {
  if (!json.is_object()) return false;
  const auto format = json.find("format"), version = json.find("version");
  return format != json.end() && format->is_string() &&
         format->get_ref<const std::string&>() == kFormat &&
         version != json.end() && version->is_number() &&
         version->get<double>() == kVersion;
}

// Duration of an all-reduce that was not measured across nodes: a ring of
// messages, as slow as its slowest link. Links between nodes are shared with
// other lines, as if `shared` bytes were sent; within a node every device has
// its own.
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
  // With two ranks: a ring's 2 (n - 1) messages of 1/n of the bytes.
  network.collectives = {
      StatedCosts("all_reduce", Growth::kRing, 2 * alpha, beta),
      StatedCosts("ping_pong", Growth::kFlat, alpha, beta)};
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
    if (network.MessagesName(/*across_hosts=*/false).empty())
      return missing("messages within a node");
  }
  return absl::OkStatus();
}

absl::Status CheckReach(const Cluster& cluster, int64_t ranks) {
  if (ranks <= cluster.devices_per_node ||
      !cluster.network.MessagesName(/*across_hosts=*/true).empty())
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
    name = std::string(network.MessagesName(across));
  } else if ((across ? network.FindAcrossHosts(name) : network.Find(name)) ==
                 nullptr &&
             name != "all_reduce") {
    name = "all_reduce";
    share = 0.5;
  }
  // All devices of a node send at once: each line has its share of the links.
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

absl::StatusOr<Cluster> ClusterFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!IsClusterFile(json)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a cluster's file: expected a JSON object with "
        "\"format\": \"",
        kFormat, "\" and \"version\": ", kVersion, " (docs/plan.md)"));
  }
  try {
    return ClusterOf(json);
  } catch (const Json::exception& error) {
    // Drops the exception's name, which the library puts in brackets before the
    // message.
    const std::vector<std::string> parts =
        absl::StrSplit(error.what(), absl::MaxSplits("] ", 1));
    return absl::InvalidArgumentError(parts.back());
  }
}

}  // namespace rankwise::plan
