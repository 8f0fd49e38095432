// Messages of the JSON library name the place of what they complain about.
#define JSON_DIAGNOSTICS 1

#include <cmath>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/plan/cluster.h"
#include "analysis/text/json_keys.h"
#include "nlohmann/json.hpp"

namespace rankwise::plan {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "rankwise cluster";
constexpr int kVersion = 1;

// Throws an exception that says what `json` must be, unless `ok`.
void Require(bool ok, const Json& json, const char* what) {
  if (!ok) throw Json::other_error::create(599, what, &json);
}

// In the file's units. No cluster has numbers outside this range, and results
// computed from them might not be finite.
double Positive(const Json& json, const char* key) {
  constexpr double kLeast = 1e-9, kMost = 1e9;
  const Json& value = json.at(key);
  Require(value.is_number() && value.get<double>() >= kLeast &&
              value.get<double>() <= kMost,
          value, "must be a number above 0, from 1e-9 to 1e9");
  return value.get<double>();
}

// The name is printed, so it must be printable.
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

}  // namespace

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
    // Without the name of the exception in brackets.
    const std::vector<std::string> parts =
        absl::StrSplit(error.what(), absl::MaxSplits("] ", 1));
    return absl::InvalidArgumentError(parts.back());
  }
}

}  // namespace rankwise::plan
