#include "analysis/answer/serial_fraction.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/number_text.h"

namespace rankwise {

std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series) {
  std::vector<SerialFraction> fractions;
  if (series.scaling != Scaling::kStrong) return fractions;
  for (const ScalingRow* row : series.rows) {
    const int64_t world_size = row->cell->run.world_size;
    const int64_t base = row->base->run.world_size;
    if (world_size <= base) continue;
    const double ranks =
        static_cast<double>(world_size) / static_cast<double>(base);
    const Interval& speedup = row->efficiency->speedup_interval;
    SerialFraction& one = fractions.emplace_back();
    one.world_size = world_size;
    one.value = KarpFlatt(row->efficiency->speedup, ranks);
    one.interval = {std::nan(""), std::nan("")};
    if (speedup.low > 0) {
      one.interval = {KarpFlatt(speedup.high, ranks),
                      KarpFlatt(speedup.low, ranks)};
    }
  }
  return fractions;
}

std::string SerialTrend(absl::Span<const SerialFraction> fractions) {
  if (fractions.size() < 2) return "";
  const SerialFraction& first = fractions.front();
  const SerialFraction& last = fractions.back();
  if (first.world_size == last.world_size || std::isnan(first.interval.low) ||
      std::isnan(last.interval.low)) {
    return "";
  }
  const std::string from_to = absl::StrCat(
      "from ", PercentText(first.value), " on ", first.world_size, " ranks to ",
      PercentText(last.value), " on ", last.world_size);
  if (last.interval.low > first.interval.high) {
    return absl::StrCat("rises ", from_to,
                        ": overhead that grows with the ranks, not work that "
                        "stays serial");
  }
  if (last.interval.high < first.interval.low) {
    return absl::StrCat("falls ", from_to,
                        ": most is lost with the first ranks that are added, "
                        "little with more");
  }
  return absl::StrCat("goes ", from_to,
                      ", which is no change beyond the intervals: as work that "
                      "stays serial would have it");
}

}  // namespace rankwise
