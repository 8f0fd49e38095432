#include "analysis/cost_model/network_text.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/text/text_table.h"

namespace rankwise {
namespace {

constexpr double kAstraSimGigabyte = 1 << 30;

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

// The sizes that were measured.
std::string RangeText(const CostCurve& curve) {
  if (curve.points.empty()) return "any";
  const double first = curve.points.front().bytes;
  const double last = curve.points.back().bytes;
  if (last == 0) return "-";
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

std::string PercentOf(double share) {
  return absl::StrFormat("%.1f", share * 100);
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

}  // namespace

std::string NetworkText(const NetworkModel& network) {
  TextTable table(
      {"collective", "ranks", "measured", "alpha us", "95 %", "beta ns/B",
       "95 %", "GB/s", "off the line %", "between sizes %"},
      1);
  for (const CollectiveCosts& costs : network.collectives) {
    for (const CostCurve& curve : costs.curves) {
      const CostLine& line = curve.line;
      table.AddRow({costs.collective, absl::StrCat(curve.world_size),
                    RangeText(curve), Number(line.alpha_seconds * 1e6),
                    IntervalText(line.alpha_interval, 1e-6),
                    Number(line.beta_seconds_per_byte * 1e9),
                    IntervalText(line.beta_interval, 1e-9),
                    BandwidthText(line.beta_seconds_per_byte),
                    PercentOf(curve.median_relative_error),
                    PercentOf(curve.InterpolationError())});
    }
  }
  std::string text = absl::StrCat(network.name, "\n\n", table.ToString(), "\n");
  for (const CollectiveCosts& costs : network.collectives) {
    absl::StrAppend(&text, GrowthText(costs), "\n");
  }
  return text;
}

absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes) {
  for (const char* collective : {"ping_pong", "send_recv"}) {
    const CollectiveCosts* costs = network.Find(collective);
    if (costs == nullptr) continue;
    const CostCurve& curve = costs->curves.front();
    const double expected = curve.line.SecondsFor(bytes);
    const double factor = expected > 0 ? curve.SecondsFor(bytes) / expected : 1;
    return MessageLine{factor * curve.line.alpha_seconds,
                       factor * curve.line.beta_seconds_per_byte,
                       costs->collective};
  }
  return absl::NotFoundError(
      absl::StrCat("no messages were measured over ", network.backend,
                   ": run comm_bench with --nproc=2 "
                   "--collectives=ping_pong,send_recv --record=FILE"));
}

std::string ShowFlags(const MessageLine& line, double bytes) {
  return absl::StrFormat("--link=%.6g,%.6g --bytes=%.0f", line.alpha_seconds,
                         line.beta_seconds_per_byte, bytes);
}

absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus) {
  if (npus < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(npus, " NPUs: ASTRA-sim's networks have at least 2"));
  }
  if (line.beta_seconds_per_byte <= 0) {
    return absl::FailedPreconditionError(
        "the measured messages cost the same whatever their size, and "
        "ASTRA-sim takes no infinite bandwidth: measure larger ones");
  }
  return absl::StrFormat(
      "topology: [ Ring ]\n"
      "npus_count: [ %d ]\n"
      "bandwidth: [ %.10g ]  # GB/s, of 2^30 bytes\n"
      "latency: [ %.10g ]  # ns\n",
      npus, 1 / (line.beta_seconds_per_byte * kAstraSimGigabyte),
      line.alpha_seconds * 1e9);
}

}  // namespace rankwise
