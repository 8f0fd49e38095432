#include "analysis/history/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

struct Stretch {
  size_t from = 0, to = 0;
  double p_value = 1;  // corrected
};

// Count, mean and sum of squared differences from it, of values that come and
// go.
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

// The square of Student's two-sample t, with the value of either side left out
// that separates them most: one outlier makes no level.
double SquaredT(const Side& inside, const Side& outside) {
  const bool higher = inside.moments.Mean() > outside.moments.Mean();
  const Moments a =
      inside.moments.Without(higher ? inside.largest : inside.least);
  const Moments b =
      outside.moments.Without(higher ? outside.least : outside.largest);
  const double difference = a.Mean() - b.Mean();
  if ((difference > 0) != higher) return 0;
  // Below this a difference is one of rounding.
  const double rounding =
      1e-12 * (inside.moments.squares + outside.moments.squares);
  if (difference * difference <= rounding) return 0;
  const double variance =
      std::max(a.Scatter() + b.Scatter(), rounding) / (a.count + b.count - 2);
  return difference * difference / (variance * (1 / a.count + 1 / b.count));
}

// Of the stretches [from, to) of `values` for which `allowed` holds, the one
// that differs most from the other values.
template <typename Allowed>
Stretch MostDifferent(absl::Span<const double> values, const Allowed& allowed) {
  const size_t end = values.size();
  std::vector<Side> before(1), after(1);  // of the first n, of the last n
  for (size_t i = 0; i < end; ++i) {
    before.push_back(before.back());
    before.back().Add(values[i]);
    after.push_back(after.back());
    after.back().Add(values[end - 1 - i]);
  }
  Stretch best;
  double best_squared_t = 0, stretches = 0;
  for (size_t from = 0; from < end; ++from) {
    Side inside;
    for (size_t to = from + 1; to <= end; ++to) {
      inside.Add(values[to - 1]);
      if (to - from < kLeastValuesOfLevel || !allowed(from, to)) continue;
      ++stretches;
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
  best.p_value = std::min(1.0, p * stretches);
  return best;
}

// The changes within values [begin, begin + count) of all.
void Segment(absl::Span<const double> values, size_t begin, double alpha,
             std::vector<ChangePoint>& found) {
  const size_t count = values.size();
  if (count < 2 * kLeastValuesOfLevel) return;
  const auto is_side = [](size_t size) { return size >= kLeastValuesOfLevel; };
  // One side of a split is a stretch from the beginning.
  Stretch best = MostDifferent(values, [&](size_t from, size_t to) {
    return from == 0 && is_side(count - to);
  });
  if (!(best.p_value < alpha / 2)) {
    best = MostDifferent(values, [&](size_t from, size_t to) {
      return is_side(from) && is_side(count - to);
    });
  }
  if (!(best.p_value < alpha / 2)) return;
  if (best.from > 0) {
    Segment(values.subspan(0, best.from), begin, alpha, found);
    found.push_back({begin + best.from, best.p_value});
  }
  Segment(values.subspan(best.from, best.to - best.from), begin + best.from,
          alpha, found);
  found.push_back({begin + best.to, best.p_value});
  Segment(values.subspan(best.to), begin + best.to, alpha, found);
}

}  // namespace

std::vector<ChangePoint> FindChangePoints(absl::Span<const double> values,
                                          double alpha) {
  // From their mean, so that sums of squares do not cancel.
  std::vector<double> centred(values.begin(), values.end());
  for (double& value : centred) value -= Mean(values);
  std::vector<ChangePoint> found;
  Segment(centred, 0, alpha, found);
  return found;
}

}  // namespace rankwise
