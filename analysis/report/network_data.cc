#include "analysis/report/network_data.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "analysis/report/cell_data.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

json CurveData(const CostCurve& curve) {
  json points = json::array(), segments = json::array();
  for (const CostPoint& point : curve.points) {
    points.push_back({{"bytes", point.bytes},
                      {"seconds", point.median_seconds},
                      {"interval", IntervalData(point.interval)}});
  }
  for (const CostSegment& segment : curve.segments) {
    segments.push_back(
        {{"min_bytes", segment.min_bytes},
         {"max_bytes", segment.max_bytes},  // infinite: null
         {"alpha_seconds", segment.alpha_seconds},
         {"alpha_interval", IntervalData(segment.alpha_interval)},
         {"beta_seconds_per_byte", segment.beta_seconds_per_byte},
         {"beta_interval", IntervalData(segment.beta_interval)}});
  }
  return {{"collective", curve.collective},
          {"ranks", curve.world_size},
          {"bus_factor", curve.bus_factor},  // not known: null
          {"points", points},
          {"segments", segments},
          {"error", curve.median_relative_error}};
}

json MessageData(const LogGP& message) {
  return {
      {"latency_seconds", message.latency_seconds},
      {"latency_interval", IntervalData(message.latency_interval)},
      {"overhead_seconds", message.overhead_seconds},
      {"overhead_interval", IntervalData(message.overhead_interval)},
      {"gap_seconds", message.gap_seconds},
      {"gap_interval", IntervalData(message.gap_interval)},
      {"gap_seconds_per_byte", message.gap_seconds_per_byte},
      {"gap_per_byte_interval", IntervalData(message.gap_per_byte_interval)}};
}

}  // namespace

json NetworksData(absl::Span<const NetworkModel> networks) {
  json data = json::array();
  for (const NetworkModel& network : networks) {
    json curves = json::array(), messages = json::array();
    for (const CollectiveCosts& costs : network.collectives) {
      for (const CostCurve& curve : costs.curves) {
        curves.push_back(CurveData(curve));
      }
    }
    for (const LogGP& message : network.messages) {
      messages.push_back(MessageData(message));
    }
    data.push_back({{"name", network.name},
                    {"backend", network.backend},
                    {"curves", curves},
                    {"messages", messages}});
  }
  return data;
}

json CallsData(absl::Span<const Configuration> calls) {
  json data = json::array();
  for (const Configuration& call : calls) {
    json one(call.identity);
    const std::vector<double>& seconds = call.samples[0].values;
    int64_t bytes = 0, ranks = 0;
    if (!absl::SimpleAtoi(call.identity.at("bytes"), &bytes) ||
        !absl::SimpleAtoi(call.identity.at("ranks"), &ranks)) {
      continue;
    }
    one["name"] = call.name;
    one["bytes"] = bytes;
    one["ranks"] = ranks;
    one["seconds"] = Median(seconds);
    one["launches"] = seconds.size();
    one["bus_factor"] = call.bus_factor;
    data.push_back(std::move(one));
  }
  return data;
}

}  // namespace rankwise
