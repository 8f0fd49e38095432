#include "analysis/history/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

constexpr double kSearches = 2;  // one for a split, one for a segment

struct Segment {
  size_t from = 0, to = 0;
  double p_value = 1;  // corrected
};

// Count, sum and sum of squares of values that can be added and removed.
struct Moments {
  double count = 0, sum = 0, squares = 0;

  void Add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  Moments Without(const Moments& other) const {
    return {count - other.count, sum - other.sum, squares - other.squares};
  }
  Moments Without(double value) const {
    return {count - 1, sum - value, squares - value * value};
  }
  double Mean() const { return sum / count; }
  double Scatter() const { return std::max(0.0, squares - sum * sum / count); }
};

struct Side {
  Moments moments;
  double least = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    moments.Add(value);
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
};

// Returns the square of Student's two-sample t, without the most extreme value
// of each side in the direction of the difference, so that one outlier is not a
// level.
double SquaredT(const Side& inside, const Side& outside) {
  const bool higher = inside.moments.Mean() > outside.moments.Mean();
  const Moments a =
      inside.moments.Without(higher ? inside.largest : inside.least);
  const Moments b =
      outside.moments.Without(higher ? outside.least : outside.largest);
  const double difference = a.Mean() - b.Mean();
  if ((difference > 0) != higher) return 0;
  // Smaller differences are rounding errors.
  const double rounding =
      1e-12 * (inside.moments.squares + outside.moments.squares);
  if (difference * difference <= rounding) return 0;
  const double variance =
      std::max(a.Scatter() + b.Scatter(), rounding) / (a.count + b.count - 2);
  return difference * difference / (variance * (1 / a.count + 1 / b.count));
}

// Returns the segment [from, to) of `values` that differs most from the other
// values, among those for which `allowed` is true.
template <typename Allowed>
Segment MostDifferent(absl::Span<const double> values, const Allowed& allowed) {
  const size_t end = values.size();
  std::vector<Side> before(1), after(1);  // [n]: the first n, the last n values
  for (size_t i = 0; i < end; ++i) {
    before.push_back(before.back());
    before.back().Add(values[i]);
    after.push_back(after.back());
    after.back().Add(values[end - 1 - i]);
  }
  Segment best;
  double best_squared_t = 0, segments = 0;
  for (size_t from = 0; from < end; ++from) {
    Side inside;
    for (size_t to = from + 1; to <= end; ++to) {
      inside.Add(values[to - 1]);
      if (to - from < kLeastValuesOfLevel || !allowed(from, to)) continue;
      ++segments;
      const Side outside = {
          before.back().moments.Without(inside.moments),
          std::min(before[from].least, after[end - to].least),
          std::max(before[from].largest, after[end - to].largest)};
      const double squared_t = SquaredT(inside, outside);
      if (squared_t <= best_squared_t) continue;
      best_squared_t = squared_t;
      best = {from, to};
    }
  }
  if (best_squared_t == 0) return best;
  const double p =
      StudentTwoSidedP(std::sqrt(best_squared_t), static_cast<double>(end - 4));
  best.p_value = std::min(1.0, kSearches * p * segments);
  return best;
}

// Appends the changes of `values`, which begin at index `begin` of the series.
void Split(absl::Span<const double> values, size_t begin, double alpha,
           std::vector<ChangePoint>& found) {
  const size_t count = values.size();
  if (count < 2 * kLeastValuesOfLevel) return;
  const auto is_side = [](size_t size) { return size >= kLeastValuesOfLevel; };
  // One side of a split is a segment that starts at the beginning.
  Segment best = MostDifferent(values, [&](size_t from, size_t to) {
    return from == 0 && is_side(count - to);
  });
  if (!(best.p_value < alpha)) {
    best = MostDifferent(values, [&](size_t from, size_t to) {
      return is_side(from) && is_side(count - to);
    });
  }
  if (!(best.p_value < alpha)) return;
  if (best.from > 0) {
    Split(values.subspan(0, best.from), begin, alpha, found);
    found.push_back({begin + best.from, best.p_value});
  }
  Split(values.subspan(best.from, best.to - best.from), begin + best.from,
        alpha, found);
  found.push_back({begin + best.to, best.p_value});
  Split(values.subspan(best.to), begin + best.to, alpha, found);
}

}  // namespace

std::vector<ChangePoint> FindChangePoints(absl::Span<const double> values,
                                          double alpha) {
  // Relative to the mean, so that sums of squares do not cancel.
  std::vector<double> centred(values.begin(), values.end());
  for (double& value : centred) value -= Mean(values);
  std::vector<ChangePoint> found;
  Split(centred, 0, alpha, found);
  return found;
}

}  // namespace rankwise
