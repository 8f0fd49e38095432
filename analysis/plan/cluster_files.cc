// Messages of the JSON library name the place of what they complain about.
#define JSON_DIAGNOSTICS 1

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/plan/cluster.h"
#include "analysis/runs/throughput.h"
#include "analysis/stats/statistics.h"
#include "nlohmann/json.hpp"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "rankwise cluster";
constexpr int kVersion = 1;
constexpr double kLeastDeviation = 0.05;  // of a prediction from records

// A number above 0; throws what `json` must be.
double Positive(const Json& json, const char* key) {
  const Json& value = json.at(key);
  const bool ok = value.is_number() && value.get<double>() > 0 &&
                  std::isfinite(value.get<double>());
  if (!ok)
    throw Json::other_error::create(599, "must be a number above 0", &value);
  return value.get<double>();
}

Device DeviceOf(const Json& json) {
  Device device;
  device.peak_flops = 1e12 * Positive(json, "peak_tflops");
  device.memory_bytes = 1e9 * Positive(json, "memory_gb");
  if (json.contains("memory_gb_per_second"))
    device.memory_bytes_per_second =
        1e9 * Positive(json, "memory_gb_per_second");
  if (!json.contains("efficiency")) return device;
  const Json& efficiency = json.at("efficiency");
  device.efficiency.most = Positive(efficiency, "most");
  if (device.efficiency.most > 1)
    throw Json::other_error::create(599, "must be at most 1",
                                    &efficiency.at("most"));
  if (efficiency.contains("scale_gflop"))
    device.efficiency.scale = 1e9 * Positive(efficiency, "scale_gflop");
  return device;
}

StatedLinks LinksOf(const Json& json) {
  const Json &intra = json.at("intra_node"), &inter = json.at("inter_node");
  return {1e-6 * Positive(intra, "latency_us"),
          1e9 * Positive(intra, "gb_per_second"),
          1e-6 * Positive(inter, "latency_us"),
          1e9 * Positive(inter, "gb_per_second_of_node")};
}

Cluster ClusterOf(const Json& json) {
  Cluster cluster;
  cluster.name = json.value("name", "cluster");
  const double devices = Positive(json, "devices_per_node");
  if (devices != std::floor(devices) || devices > 1 << 20)
    throw Json::other_error::create(599, "must be a whole number",
                                    &json.at("devices_per_node"));
  cluster.devices_per_node = static_cast<int64_t>(devices);
  cluster.device = DeviceOf(json.at("device"));
  if (json.contains("relative_error"))
    cluster.deviation = Positive(json, "relative_error");
  cluster.network = StatedNetwork(LinksOf(json));
  return cluster;
}

// Trainers whose ranks compute all the time that they do not communicate.
bool ShowsComputing(const RunTrace& run) {
  const std::string& binary = run.ranks[0].run.binary;
  return (binary == "single" || binary == "ddp" || binary == "fsdp") &&
         run.ranks[0].run.forward_flops_per_example > 0;
}

}  // namespace

absl::StatusOr<Cluster> ClusterFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  const auto format = json.find("format"), version = json.find("version");
  if (!json.is_object() || format == json.end() || *format != kFormat ||
      version == json.end() || *version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a cluster's file: expected a JSON object with "
        "\"format\": \"",
        kFormat, "\" and \"version\": ", kVersion, " (docs/plan.md)"));
  }
  try {
    return ClusterOf(json);
  } catch (const Json::exception& error) {
    // Without the name of the exception in brackets.
    const std::vector<std::string> parts =
        absl::StrSplit(error.what(), absl::MaxSplits("] ", 1));
    return absl::InvalidArgumentError(parts.back());
  }
}

absl::StatusOr<Cluster> ClusterFromRecords(absl::Span<const RunTrace> runs) {
  std::vector<double> rates;
  const RunRecord* record = nullptr;
  for (const RunTrace& run : runs) {
    if (run.ranks.empty() || !ShowsComputing(run)) continue;
    const RunRecord& first = run.ranks[0].run;
    const auto used = MeasureThroughput(run, {});
    if (!used.ok()) continue;
    const double computing =
        1 - used->exposed_comm_share - used->data_wait_share;
    if (!(computing > 0)) continue;
    if (record != nullptr && first.world_size < record->world_size) continue;
    // As busy as the machine is with the most ranks.
    if (record == nullptr || first.world_size > record->world_size)
      rates.clear();
    record = &first;
    rates.push_back(3 * first.forward_flops_per_example *
                    used->examples_per_second / computing /
                    static_cast<double>(first.world_size));
  }
  if (record == nullptr) {
    return absl::FailedPreconditionError(
        "--records: no run of single, ddp or fsdp shows what computing takes: "
        "record one, bazel run //trainers:ddp -- --nproc=2 --model=gpt "
        "--record=DIR/ddp.jsonl");
  }
  Cluster cluster;
  cluster.name = record->host.cpu_model;
  cluster.devices_per_node = std::max<int64_t>(
      1, record->world_size / std::max<int64_t>(1, record->hosts));
  cluster.device.peak_flops = Median(rates);
  cluster.device.memory_bytes = static_cast<double>(record->host.memory_bytes) /
                                static_cast<double>(cluster.devices_per_node);
  cluster.deviation = kLeastDeviation;
  if (rates.size() > 1) {
    cluster.deviation =
        std::max(kLeastDeviation, StandardDeviation(rates) / Mean(rates));
  }
  ASSIGN_OR_RETURN(cluster.network, FitNetwork(runs));
  return cluster;
}

}  // namespace rankwise::plan
