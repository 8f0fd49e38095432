#include "analysis/cost_model/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

constexpr size_t kFewestSizes = 3;
constexpr double kOutside = 0.05;  // of a 95 % interval

// Calls by size and launch.
using Calls = std::map<double, std::map<int64_t, std::vector<double>>>;

Calls SortCalls(absl::Span<const CostSamples> samples) {
  Calls calls;
  for (const CostSamples& some : samples) {
    if (some.seconds.empty()) continue;
    std::vector<double>& all = calls[some.bytes][some.launch];
    all.insert(all.end(), some.seconds.begin(), some.seconds.end());
  }
  return calls;
}

std::vector<double> OfAllLaunches(
    const std::map<int64_t, std::vector<double>>& launches) {
  std::vector<double> all;
  for (const auto& [launch, seconds] : launches) {
    all.insert(all.end(), seconds.begin(), seconds.end());
  }
  return all;
}

// How far the next launches may lie from these at all sizes alike, as a share:
// half a 95 % interval of the mean of the launches' deviations, each the median
// over the sizes that it shares with others. 0 for one launch, of which it is
// not known.
double SpreadOfLaunches(const Calls& calls) {
  std::map<int64_t, std::vector<double>> deviations;
  for (const auto& [bytes, launches] : calls) {
    if (launches.size() < 2) continue;
    const double median = Median(OfAllLaunches(launches));
    for (const auto& [launch, seconds] : launches) {
      const double deviation = std::log(Median(seconds) / median);
      if (std::isfinite(deviation)) deviations[launch].push_back(deviation);
    }
  }
  std::vector<double> shifts;
  for (const auto& [launch, of_sizes] : deviations) {
    shifts.push_back(Median(of_sizes));
  }
  if (shifts.size() < 2) return 0;
  const double count = static_cast<double>(shifts.size());
  return StudentTwoSidedQuantile(kOutside, count - 1) *
         StandardDeviation(shifts) / std::sqrt(count);
}

// The interval of `value` with an independent error of `relative` of it.
Interval Widened(const Interval& interval, double value, double relative) {
  const double more = relative * value;
  return {std::max(0.0, value - std::hypot(value - interval.low, more)),
          value + std::hypot(interval.high - value, more)};
}

std::vector<CostPoint> PointsOf(const Calls& calls, double spread) {
  std::vector<CostPoint> points;
  for (const auto& [bytes, launches] : calls) {
    const std::vector<double> seconds = OfAllLaunches(launches);
    const double median = Median(seconds);
    if (!(median > 0)) continue;
    points.push_back(
        {bytes, median, Widened(MedianInterval(seconds), median, spread)});
  }
  return points;
}

// The sums of a weighted straight line; weights are 1 / expected^2.
struct LineSums {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;

  void Add(double x, double y, double expected) {
    const double weight = 1 / (expected * expected);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }

  double Determinant() const { return w * wxx - wx * wx; }

  CostLine NonNegativeLine() const {
    CostLine line;
    line.beta_seconds_per_byte =
        std::max(0.0, (w * wxy - wx * wy) / Determinant());
    line.alpha_seconds = (wy - line.beta_seconds_per_byte * wx) / w;
    if (line.alpha_seconds >= 0) return line;
    line.alpha_seconds = 0;
    line.beta_seconds_per_byte = wxy / wxx;
    return line;
  }
};

// Least squares with the usual intervals (Student's t, two parameters).
CostLine FitLine(const std::vector<CostPoint>& points, double spread) {
  // What is weighted by a noisy time is fitted too low: the weights come from
  // the measured times first, and then twice from the line itself.
  CostLine line;
  LineSums sums;
  for (int pass = 0; pass < 3; ++pass) {
    sums = LineSums();
    for (const CostPoint& point : points) {
      const double expected = line.SecondsFor(point.bytes);
      sums.Add(point.bytes, point.median_seconds,
               pass > 0 && expected > 0 ? expected : point.median_seconds);
    }
    line = sums.NonNegativeLine();
  }
  double squares = 0;
  for (const CostPoint& point : points) {
    const double expected = line.SecondsFor(point.bytes);
    const double off = expected > 0 ? point.median_seconds / expected - 1 : 1;
    squares += off * off;
  }
  const double degrees = static_cast<double>(points.size()) - 2;
  const double half = StudentTwoSidedQuantile(kOutside, degrees) *
                      std::sqrt(squares / degrees / sums.Determinant());
  const auto interval = [spread](double value, double half_width) {
    return Widened({value - half_width, value + half_width}, value, spread);
  };
  line.alpha_interval =
      interval(line.alpha_seconds, half * std::sqrt(sums.wxx));
  line.beta_interval =
      interval(line.beta_seconds_per_byte, half * std::sqrt(sums.w));
  return line;
}

double MedianRelativeError(const CostCurve& curve) {
  std::vector<double> errors;
  for (const CostPoint& point : curve.points) {
    errors.push_back(std::abs(
        curve.line.SecondsFor(point.bytes) / point.median_seconds - 1));
  }
  return Median(errors);
}

CostPoint Between(const CostPoint& below, const CostPoint& above,
                  double bytes) {
  const double share = (bytes - below.bytes) / (above.bytes - below.bytes);
  const auto mix = [share](double x, double y) { return x + share * (y - x); };
  return {bytes,
          mix(below.median_seconds, above.median_seconds),
          {mix(below.interval.low, above.interval.low),
           mix(below.interval.high, above.interval.high)}};
}

}  // namespace

CostPoint CostCurve::PointAt(double bytes) const {
  if (points.empty()) {
    const double seconds = line.SecondsFor(bytes);
    return {bytes, seconds, {seconds, seconds}};
  }
  const auto above = std::lower_bound(
      points.begin(), points.end(), bytes,
      [](const CostPoint& point, double size) { return point.bytes < size; });
  if (above == points.end()) return points.back();
  if (above == points.begin() || above->bytes == bytes) return *above;
  return Between(*std::prev(above), *above, bytes);
}

double CostCurve::SecondsFor(double bytes) const {
  const CostPoint nearest = PointAt(bytes);
  const double there = line.SecondsFor(nearest.bytes);
  const double factor = there > 0 ? line.SecondsFor(bytes) / there : 1;
  return nearest.median_seconds * factor;
}

double CostCurve::InterpolationError() const {
  if (points.size() < 3) return median_relative_error;
  std::vector<double> errors;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    const CostPoint guess =
        Between(points[i - 1], points[i + 1], points[i].bytes);
    errors.push_back(
        std::abs(guess.median_seconds / points[i].median_seconds - 1));
  }
  return Median(errors);
}

absl::StatusOr<CostCurve> FitCostCurve(absl::Span<const CostSamples> samples) {
  const Calls calls = SortCalls(samples);
  const double spread = SpreadOfLaunches(calls);
  CostCurve curve;
  curve.points = PointsOf(calls, spread);
  if (curve.points.size() == 1 && curve.points[0].bytes == 0) {
    curve.line.alpha_seconds = curve.points[0].median_seconds;
    curve.line.alpha_interval = curve.points[0].interval;
    return curve;
  }
  if (curve.points.size() < kFewestSizes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "latency and bandwidth cannot be separated by ", curve.points.size(),
        curve.points.size() == 1 ? " size" : " sizes", ": measure at least ",
        kFewestSizes));
  }
  curve.line = FitLine(curve.points, spread);
  curve.median_relative_error = MedianRelativeError(curve);
  return curve;
}

}  // namespace rankwise
