#include "analysis/stats/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

constexpr size_t kFewestSizes = 3;
constexpr double kOutside = 0.05;  // of a 95 % interval

CostPoint Between(const CostPoint& below, const CostPoint& above,
                  double bytes) {
  const double share = (bytes - below.bytes) / (above.bytes - below.bytes);
  const auto mix = [share](double x, double y) { return x + share * (y - x); };
  return {bytes,
          mix(below.median_seconds, above.median_seconds),
          {mix(below.interval.low, above.interval.low),
           mix(below.interval.high, above.interval.high)}};
}

// medians of one size, by launch
using LaunchMedians = std::map<int64_t, double>;

// Skips launches whose calls took no time, and sizes without a launch.
std::map<double, LaunchMedians> MediansOf(const CallSeconds& calls) {
  std::map<double, LaunchMedians> medians;
  for (const auto& [bytes, launches] : calls) {
    for (const auto& [launch, seconds] : launches) {
      const double median = Median(seconds);  // NaN without calls
      if (median > 0) medians[bytes][launch] = median;
    }
  }
  return medians;
}

std::vector<double> ValuesOf(const LaunchMedians& medians) {
  return NumbersOf(medians, [](const auto& launch) { return launch.second; });
}

int64_t CountLaunches(const std::map<double, LaunchMedians>& medians) {
  std::set<int64_t> launches;
  for (const auto& [bytes, of_size] : medians) {
    for (const auto& [launch, median] : of_size) launches.insert(launch);
  }
  return static_cast<int64_t>(launches.size());
}

// Returns the uncertainty of the next launches that all sizes share, as a
// fraction: half a 95 % interval of the mean of the launches' deviations, each
// the median over the sizes that it shares with other launches. 0 for a single
// launch, whose deviation is unknown.
double SpreadOfLaunches(const std::map<double, LaunchMedians>& medians) {
  std::map<int64_t, std::vector<double>> deviations;
  for (const auto& [bytes, of_size] : medians) {
    if (of_size.size() < 2) continue;
    const double mean = GeometricMean(ValuesOf(of_size));
    for (const auto& [launch, median] : of_size)
      deviations[launch].push_back(std::log(median / mean));
  }
  const std::vector<double> shifts = NumbersOf(
      deviations, [](const auto& launch) { return Median(launch.second); });
  if (shifts.size() < 2) return 0;
  const double count = static_cast<double>(shifts.size());
  return StudentTwoSidedQuantile(kOutside, count - 1) *
         StandardDeviation(shifts) / std::sqrt(count);
}

// Adds an independent relative error to the interval of `value`.
Interval Widened(const Interval& interval, double value, double relative) {
  const double more = relative * value;
  return {std::max(0.0, value - std::hypot(value - interval.low, more)),
          value + std::hypot(interval.high - value, more)};
}

// A launch is one observation, as its calls share placement and connections. A
// size measured by a single launch gets the interval within that launch,
// widened by `spread`.
CostPoint PointOf(double bytes, const LaunchMedians& medians,
                  const CallSeconds& calls, double spread) {
  const std::vector<double> values = ValuesOf(medians);
  const double mean = GeometricMean(values);
  if (values.size() > 1) return {bytes, mean, GeometricMeanInterval(values)};
  const std::vector<double>& series =
      calls.at(bytes).at(medians.begin()->first);
  return {bytes, mean, Widened(SeriesMedianInterval(series), mean, spread)};
}

// Fits a line by least squares of relative errors, with the usual intervals
// (Student's t, two parameters).
CostLine FitLine(const std::vector<CostPoint>& points, double spread) {
  // Weights from noisy times would bias the fit downwards: they come from the
  // measured times first, then twice from the line itself.
  CostLine line;
  LeastSquares sums;
  for (int pass = 0; pass < 3; ++pass) {
    sums = {};
    for (const CostPoint& point : points) {
      const double fitted = line.SecondsFor(point.bytes);
      const double expected =
          pass > 0 && fitted > 0 ? fitted : point.median_seconds;
      sums.Add(1 / expected, point.bytes / expected,
               point.median_seconds / expected);
    }
    const auto [alpha, beta] = sums.SolveNotNegative();
    line.alpha_seconds = alpha;
    line.beta_seconds_per_byte = beta;
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
      interval(line.alpha_seconds, half * std::sqrt(sums.x1x1));
  line.beta_interval =
      interval(line.beta_seconds_per_byte, half * std::sqrt(sums.x0x0));
  return line;
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

double CostCurve::SecondsFor(double bytes, double alpha_factor,
                             double beta_factor) const {
  const CostPoint nearest = PointAt(bytes);
  const double there = line.SecondsFor(nearest.bytes);
  const double here = alpha_factor * line.alpha_seconds +
                      beta_factor * line.beta_seconds_per_byte * bytes;
  return nearest.median_seconds * (there > 0 ? here / there : 1);
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

std::set<std::string> CostCurve::Conditions() const {
  if (launches != 1) return {};
  return {"launches alike"};
}

absl::StatusOr<CostCurve> FitCostCurve(const CallSeconds& calls) {
  const std::map<double, LaunchMedians> medians = MediansOf(calls);
  const double spread = SpreadOfLaunches(medians);
  CostCurve curve;
  curve.launches = CountLaunches(medians);
  for (const auto& [bytes, of_size] : medians)
    curve.points.push_back(PointOf(bytes, of_size, calls, spread));
  const size_t sizes = curve.points.size();
  if (sizes == 1 && curve.points[0].bytes == 0) {
    curve.line.alpha_seconds = curve.points[0].median_seconds;
    curve.line.alpha_interval = curve.points[0].interval;
    return curve;
  }
  if (sizes < kFewestSizes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "latency and bandwidth cannot be separated by ", sizes,
        sizes == 1 ? " size" : " sizes", ": measure at least ", kFewestSizes));
  }
  curve.line = FitLine(curve.points, spread);
  curve.median_relative_error =
      Median(NumbersOf(curve.points, [&](const CostPoint& point) {
        return std::abs(
            curve.line.SecondsFor(point.bytes) / point.median_seconds - 1);
      }));
  return curve;
}

}  // namespace rankwise
