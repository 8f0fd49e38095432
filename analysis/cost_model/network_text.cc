#include "analysis/cost_model/network_text.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

// "712 KiB"; sizes of messages are powers of 2.
std::string SizeText(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", bytes, units[unit]);
}

// The range in which the segment was measured, not where it holds.
std::string RangeText(const CostCurve& curve, const CostSegment& segment) {
  double first = segment.min_bytes, last = segment.max_bytes;
  bool found = false;
  for (const CostPoint& point : curve.points) {
    if (point.bytes < segment.min_bytes || point.bytes >= segment.max_bytes)
      continue;
    if (!found) first = point.bytes;
    last = point.bytes;
    found = true;
  }
  if (first == 0 && last == 0) return "-";
  if (std::isinf(last)) return absl::StrCat("from ", SizeText(first));
  return absl::StrCat(SizeText(first), " to ", SizeText(last));
}

std::string Number(double value) { return absl::StrFormat("%.4g", value); }

std::string IntervalText(const Interval& interval, double unit) {
  return absl::StrFormat("%.3g..%.3g", interval.low / unit,
                         interval.high / unit);
}

std::string BandwidthText(double seconds_per_byte) {
  return seconds_per_byte > 0 ? Number(1e-9 / seconds_per_byte) : "-";
}

std::string GrowthText(const CollectiveCosts& costs) {
  std::string text =
      absl::StrCat(costs.collective, " grows as ", GrowthName(costs.growth));
  if (costs.growth_is_assumed) {
    return absl::StrCat(text, ", assumed: one world size was measured");
  }
  return absl::StrCat(text, ", the best fit to ", costs.curves.size(),
                      " world sizes");
}

std::string LogGPText(const LogGP& loggp) {
  const auto part = [](const char* name, double value, const Interval& interval,
                       double unit, const char* unit_name) {
    return absl::StrFormat("%s %.4g (%s) %s", name, value / unit,
                           IntervalText(interval, unit), unit_name);
  };
  return absl::StrCat(
      "LogGP of messages: ",
      part("L", loggp.latency_seconds, loggp.latency_interval, 1e-6, "us"),
      ", ",
      part("o", loggp.overhead_seconds, loggp.overhead_interval, 1e-6, "us"),
      ", ", part("g", loggp.gap_seconds, loggp.gap_interval, 1e-6, "us"), ", ",
      part("G", loggp.gap_seconds_per_byte, loggp.gap_per_byte_interval, 1e-9,
           "ns/B"),
      "\n");
}

}  // namespace

std::string NetworkText(const NetworkModel& network) {
  TextTable table({"collective", "ranks", "measured", "alpha us", "95 %",
                   "beta ns/B", "95 %", "GB/s", "median error %"},
                  1);
  for (const CollectiveCosts& costs : network.collectives) {
    for (const CostCurve& curve : costs.curves) {
      for (const CostSegment& segment : curve.segments) {
        table.AddRow(
            {costs.collective, absl::StrCat(curve.world_size),
             RangeText(curve, segment), Number(segment.alpha_seconds * 1e6),
             IntervalText(segment.alpha_interval, 1e-6),
             Number(segment.beta_seconds_per_byte * 1e9),
             IntervalText(segment.beta_interval, 1e-9),
             BandwidthText(segment.beta_seconds_per_byte),
             absl::StrFormat("%.1f", curve.median_relative_error * 100)});
      }
    }
  }
  std::string text = absl::StrCat(network.name, "\n\n", table.ToString(), "\n");
  for (const CollectiveCosts& costs : network.collectives) {
    absl::StrAppend(&text, GrowthText(costs), "\n");
  }
  for (const LogGP& loggp : network.messages) {
    absl::StrAppend(&text, LogGPText(loggp));
  }
  return text;
}

}  // namespace rankwise
