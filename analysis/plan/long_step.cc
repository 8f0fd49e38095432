#include "analysis/plan/long_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace rankwise::plan {
namespace {

constexpr double kRounding = 1e-9;  // relative

}  // namespace

int64_t FindPeriod(const std::vector<double>& starts) {
  const size_t n = starts.size();
  const auto repeats = [&](size_t period) {
    for (size_t i = n / 2; i + period + 1 < n; ++i) {
      const double gap = starts[i + 1] - starts[i];
      const double later = starts[i + period + 1] - starts[i + period];
      if (std::abs(later - gap) > kRounding * starts.back()) return false;
    }
    return true;
  };
  for (size_t period = 1; period <= n / 4; ++period) {
    if (repeats(period)) return static_cast<int64_t>(period);
  }
  return 1;
}

std::optional<ShorterSteps> Shorten(const Layout& layout, int64_t longest,
                                    int64_t period) {
  longest = std::max(longest, 16 * layout.pp);
  const int64_t m = layout.micro_batches;
  if (m <= longest) return std::nullopt;
  const int64_t both = std::lcm(period, layout.pp);
  if (both <= longest / 2) {
    period = both;
  } else if (layout.stages_per_rank() > 1) {
    period = (period + layout.pp - 1) / layout.pp * layout.pp;
  }
  ShorterSteps steps{layout, layout};
  steps.more.micro_batches = m - (m - longest + period - 1) / period * period;
  const int64_t apart = period * std::max<int64_t>(1, longest / 4 / period);
  steps.fewer.micro_batches = steps.more.micro_batches - apart;
  steps.repetitions = static_cast<double>(m - steps.more.micro_batches) /
                      static_cast<double>(apart);
  return steps;
}

}  // namespace rankwise::plan
