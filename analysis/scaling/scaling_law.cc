#include "analysis/scaling/scaling_law.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <random>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// A world size above the base's and its speedup.
struct Observed {
  double ranks = 0;
  double speedup = 0;
};

// Fits 1/S = 1/N + s (1 - 1/N), which is linear in s, by least squares of
// relative errors, without bounds.
double SolveSerialFraction(absl::Span<const Observed> points) {
  double squares = 0, products = 0;
  for (const Observed& point : points) {
    const double factor = point.speedup * (1 - 1 / point.ranks);
    squares += factor * factor;
    products += factor * (1 - point.speedup / point.ranks);
  }
  return products / squares;
}

double FitSerialFraction(absl::Span<const Observed> points) {
  return std::clamp(SolveSerialFraction(points), 0.0, 1.0);
}

// Logarithms of a point's throughputs, whose spread is relative.
struct LogPoint {
  double ranks = 0;
  size_t repetitions = 0;
  double mean = 0;
  double deviation = 0;  // standard deviation of the repetitions
};

std::vector<LogPoint> LogPoints(absl::Span<const ScalingPoint> points) {
  std::vector<LogPoint> result;
  for (const ScalingPoint& point : points) {
    const std::vector<double> logs =
        NumbersOf(point.throughputs, [](double x) { return std::log(x); });
    result.push_back(
        {point.ranks, logs.size(), Mean(logs), StandardDeviation(logs)});
  }
  return result;
}

std::vector<Observed> Speedups(absl::Span<const LogPoint> points,
                               absl::Span<const double> centres) {
  const auto base = absl::c_find_if(
      points, [](const LogPoint& point) { return point.ranks == 1; });
  const double of_base = centres[base - points.begin()];
  std::vector<Observed> result;
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].ranks == 1) continue;
    result.push_back({points[i].ranks, std::exp(centres[i] - of_base)});
  }
  return result;
}

// Returns the degrees of freedom of the fraction's spread, combined from those
// of the points (Satterthwaite 1946): those of the dominant point, or the sum
// if all matter equally.
double DegreesOfFreedom(absl::Span<const LogPoint> points) {
  constexpr double kStep = 1e-6;
  std::vector<double> centres = NumbersOf(points, &LogPoint::mean);
  const double at = SolveSerialFraction(Speedups(points, centres));
  double sum = 0, squares = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    centres[i] += kStep;
    const double shifted = SolveSerialFraction(Speedups(points, centres));
    centres[i] = points[i].mean;
    const double n = static_cast<double>(points[i].repetitions);
    const double effect =
        (shifted - at) / kStep * points[i].deviation / std::sqrt(n);
    sum += effect * effect;
    squares += std::pow(effect, 4) / (n - 1);
  }
  return squares > 0 ? sum * sum / squares : 1;
}

// Draws an error of the mean of each point's repetitions.
std::vector<double> RandomShifts(absl::Span<const LogPoint> points,
                                 std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  return NumbersOf(points, [&](const LogPoint& point) {
    const double n = static_cast<double>(point.repetitions);
    return point.deviation / std::sqrt(n) * normal(*random);
  });
}

// Turns normal shifts into Student's, as the deviations are themselves
// estimates. With two repetitions they may be arbitrarily large; a factor of
// e^50 already means "unknown".
std::vector<double> Shifted(absl::Span<const LogPoint> points,
                            absl::Span<const double> shifts,
                            double degrees_of_freedom,
                            std::mt19937_64* random) {
  std::chi_squared_distribution<double> chi_squared(degrees_of_freedom);
  const double factor = std::sqrt(degrees_of_freedom / chi_squared(*random));
  std::vector<double> centres = NumbersOf(points, &LogPoint::mean);
  for (size_t i = 0; i < points.size(); ++i) {
    centres[i] += std::clamp(factor * shifts[i], -50.0, 50.0);
  }
  return centres;
}

Interval IntervalOf(absl::Span<const LogPoint> points,
                    const BootstrapConfig& config) {
  std::mt19937_64 random(config.seed);
  const double freedom = DegreesOfFreedom(points);
  std::vector<double> values;
  for (int i = 0; i < config.resamples; ++i) {
    const std::vector<double> shifts = RandomShifts(points, &random);
    const std::vector<double> centres =
        Shifted(points, shifts, freedom, &random);
    values.push_back(FitSerialFraction(Speedups(points, centres)));
  }
  return {Quantile(values, 0.025), Quantile(values, 0.975)};
}

absl::Status CheckPoint(const ScalingPoint& point) {
  const auto is_wrong = [](double x) { return !(x > 0 && std::isfinite(x)); };
  if (!(point.ranks >= 1 && std::isfinite(point.ranks))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a point has ", point.ranks,
                     " ranks, and they are counted from the base's 1"));
  }
  if (absl::c_any_of(point.throughputs, is_wrong)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a throughput on ", point.ranks,
                     " times the base's ranks is not a number above 0"));
  }
  if (point.throughputs.size() >= 2) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "on ", point.ranks, " times the base's ranks there is ",
      point.throughputs.size(),
      " repetition, and a fit needs 2 or more: pass --repetitions"));
}

absl::Status CheckPoints(absl::Span<const ScalingPoint> points) {
  int bases = 0;
  for (const ScalingPoint& point : points) {
    RETURN_IF_ERROR(CheckPoint(point));
    bases += point.ranks == 1;
  }
  if (bases != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a fit needs the base case once, and there are ", bases));
  }
  if (points.size() > 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a fit needs a world size above the base's: run more of them by "
      "--world_sizes");
}

double MedianRelativeError(const AmdahlsLaw& law,
                           absl::Span<const Observed> points) {
  return Median(NumbersOf(points, [&](const Observed& point) {
    return std::abs(law.Speedup(point.ranks) / point.speedup - 1);
  }));
}

}  // namespace

double AmdahlsLaw::Speedup(double ranks) const {
  return 1 / (serial_fraction + (1 - serial_fraction) / ranks);
}

absl::StatusOr<AmdahlsLaw> FitAmdahl(absl::Span<const ScalingPoint> points,
                                     const BootstrapConfig& config) {
  RETURN_IF_ERROR(CheckPoints(points));
  const std::vector<LogPoint> logs = LogPoints(points);
  const std::vector<Observed> observed =
      Speedups(logs, NumbersOf(logs, &LogPoint::mean));
  AmdahlsLaw law;
  law.serial_fraction = FitSerialFraction(observed);
  law.interval = IntervalOf(logs, config);
  law.median_relative_error = MedianRelativeError(law, observed);
  return law;
}

double KarpFlatt(double speedup, double ranks) {
  assert(speedup > 0 && ranks > 1);
  return (1 / speedup - 1 / ranks) / (1 - 1 / ranks);
}

}  // namespace rankwise
