#include "analysis/stats/sample_median.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

namespace rankwise {
namespace {

constexpr double kTail = 0.025;
constexpr double kNormalQuantile = 1.959964;  // of 1 - kTail

// Draws the median of n values drawn from `sorted` with replacement.
class MedianDraw {
 public:
  explicit MedianDraw(const std::vector<double>& sorted)
      : sorted_(sorted),
        size_(static_cast<double>(sorted.size())),
        rank_((sorted.size() + 1) / 2),
        below_(static_cast<double>(rank_)),
        above_(size_ - static_cast<double>(rank_) + 1) {}

  double operator()(std::mt19937_64& random) {
    const double a = below_(random);
    const double place = a / (a + above_(random));
    if (sorted_.size() % 2 == 1) return At(place);
    // The next order statistic: the least of the n - k uniforms above this one.
    const double rest = size_ - static_cast<double>(rank_);
    const double step = 1 - std::pow(uniform_(random), 1 / rest);
    return (At(place) + At(place + (1 - place) * step)) / 2;
  }

 private:
  double At(double place) const {
    const auto index = static_cast<size_t>(place * size_);
    return sorted_[std::min(index, sorted_.size() - 1)];
  }

  const std::vector<double>& sorted_;
  const double size_;
  const size_t rank_;  // from 1
  std::gamma_distribution<double> below_, above_;
  std::uniform_real_distribution<double> uniform_;
};

}  // namespace

SampleMedian BootstrapMedian(absl::Span<const double> sample, int resamples,
                             std::mt19937_64& random) {
  assert(!sample.empty());
  std::vector<double> sorted(sample.begin(), sample.end());
  std::sort(sorted.begin(), sorted.end());
  SampleMedian result;
  const size_t middle = sorted.size() / 2;
  result.median = sorted.size() % 2 == 1
                      ? sorted[middle]
                      : (sorted[middle - 1] + sorted[middle]) / 2;
  MedianDraw draw(sorted);
  result.redrawn.reserve(resamples);
  for (int i = 0; i < resamples; ++i) result.redrawn.push_back(draw(random));
  SetInterval(&result);
  if (result.median > 0) {
    result.relative_sigma = (result.interval.high - result.interval.low) /
                            (2 * kNormalQuantile * result.median);
  }
  return result;
}

void SetInterval(SampleMedian* median) {
  median->interval = {Quantile(median->redrawn, kTail),
                      Quantile(median->redrawn, 1 - kTail)};
}

}  // namespace rankwise
