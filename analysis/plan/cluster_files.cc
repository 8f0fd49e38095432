// Messages of the JSON library name the place of what they complain about.
#define JSON_DIAGNOSTICS 1

#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/plan/cluster.h"
#include "nlohmann/json.hpp"

namespace rankwise::plan {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "rankwise cluster";
constexpr int kVersion = 1;

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

}  // namespace rankwise::plan
