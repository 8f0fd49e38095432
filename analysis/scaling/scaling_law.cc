#include "analysis/scaling/scaling_law.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <random>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

struct LawText {
  const char* name;
  std::vector<std::string> parameters;
};

const LawText& TextOf(ScalingLaw law) {
  static const LawText* const kTexts =
      new LawText[]{{"Amdahl", {"serial fraction"}},
                    {"Gustafson", {"serial fraction"}},
                    {"USL", {"contention", "coherency"}}};
  return kTexts[static_cast<size_t>(law)];
}

// A world size above the base's and its speedup.
struct Observed {
  double ranks = 0;
  double speedup = 0;
};

using Parameters = std::array<double, 2>;  // only USL has a second

// Every law is linear in its parameters: observed = fixed + factors *
// parameters. Gustafson's observes the speedup, the others its inverse.
struct LinearForm {
  double observed = 1;
  double fixed = 0;
  Parameters factors = {};
};

LinearForm LinearFormOf(ScalingLaw law, const Observed& point) {
  const double n = point.ranks;
  if (law == ScalingLaw::kGustafson) return {point.speedup, n, {1 - n, 0}};
  return {1 / point.speedup,
          1 / n,
          {1 - 1 / n, law == ScalingLaw::kUsl ? n - 1 : 0}};
}

// The sums for the least squares of relative errors.
LeastSquares SumSquares(ScalingLaw law, absl::Span<const Observed> points) {
  LeastSquares sums;
  for (const Observed& point : points) {
    const auto [observed, fixed, factors] = LinearFormOf(law, point);
    sums.Add(factors[0] / observed, factors[1] / observed,
             1 - fixed / observed);
  }
  return sums;
}

Parameters Fit(ScalingLaw law, absl::Span<const Observed> points) {
  Parameters parameters = SumSquares(law, points).SolveNotNegative();
  if (law != ScalingLaw::kUsl) parameters[0] = std::min(parameters[0], 1.0);
  return parameters;
}

// A point in logarithms, where the spread of repetitions is a share.
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

// How many degrees of freedom each parameter's spread has when it is put
// together from those of the points (Satterthwaite 1946): those of the point
// that matters alone, or those of all where all matter alike.
Parameters DegreesOfFreedom(ScalingLaw law, absl::Span<const LogPoint> points) {
  constexpr double kStep = 1e-6;
  std::vector<double> centres = NumbersOf(points, &LogPoint::mean);
  const auto solve = [&] {
    return SumSquares(law, Speedups(points, centres)).Solve();
  };
  const Parameters at = solve();
  Parameters sums = {}, squares = {};
  for (size_t i = 0; i < points.size(); ++i) {
    centres[i] += kStep;
    const Parameters shifted = solve();
    centres[i] = points[i].mean;
    const double n = static_cast<double>(points[i].repetitions);
    for (size_t p = 0; p < at.size(); ++p) {
      const double effect =
          (shifted[p] - at[p]) / kStep * points[i].deviation / std::sqrt(n);
      sums[p] += effect * effect;
      squares[p] += std::pow(effect, 4) / (n - 1);
    }
  }
  for (size_t p = 0; p < sums.size(); ++p) {
    sums[p] = squares[p] > 0 ? sums[p] * sums[p] / squares[p] : 1;
  }
  return sums;
}

// How far the means of the points' repetitions may be off, drawn once.
std::vector<double> RandomShifts(absl::Span<const LogPoint> points,
                                 std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  return NumbersOf(points, [&](const LogPoint& point) {
    const double n = static_cast<double>(point.repetitions);
    return point.deviation / std::sqrt(n) * normal(*random);
  });
}

// Normal shifts become Student's, as the deviations are themselves estimates.
// Of two repetitions they may be beyond all bounds; a factor of e^50 says
// "anything" as well.
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

// One interval per parameter.
std::vector<Interval> Intervals(ScalingLaw law,
                                absl::Span<const LogPoint> points,
                                const BootstrapConfig& config) {
  std::mt19937_64 random(config.seed);
  const Parameters freedom = DegreesOfFreedom(law, points);
  std::vector<std::vector<double>> values(TextOf(law).parameters.size());
  for (int i = 0; i < config.resamples; ++i) {
    const std::vector<double> shifts = RandomShifts(points, &random);
    for (size_t p = 0; p < values.size(); ++p) {
      const std::vector<double> centres =
          Shifted(points, shifts, freedom[p], &random);
      values[p].push_back(Fit(law, Speedups(points, centres))[p]);
    }
  }
  std::vector<Interval> intervals;
  for (const std::vector<double>& v : values) {
    intervals.push_back({Quantile(v, 0.025), Quantile(v, 0.975)});
  }
  return intervals;
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

absl::Status CheckPoints(ScalingLaw law,
                         absl::Span<const ScalingPoint> points) {
  std::set<double> sizes;
  int bases = 0;
  for (const ScalingPoint& point : points) {
    RETURN_IF_ERROR(CheckPoint(point));
    if (point.ranks == 1) {
      ++bases;
    } else {
      sizes.insert(point.ranks);
    }
  }
  if (bases != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a fit needs the base case once, and there are ", bases));
  }
  const size_t needed = TextOf(law).parameters.size();
  if (sizes.size() >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ScalingLawName(law), " has ",
                   Counted(static_cast<int64_t>(needed), "parameter"),
                   ", and there are ", sizes.size(),
                   " world sizes above the base's to fit: run more of them by "
                   "--world_sizes"));
}

double MedianRelativeError(const FittedLaw& fitted,
                           absl::Span<const Observed> points) {
  return Median(NumbersOf(points, [&](const Observed& point) {
    return std::abs(fitted.Speedup(point.ranks) / point.speedup - 1);
  }));
}

}  // namespace

double FittedLaw::Speedup(double ranks) const {
  const LinearForm form = LinearFormOf(law, {ranks, 1});
  double value = form.fixed;
  for (size_t i = 0; i < parameters.size(); ++i) {
    value += form.factors[i] * parameters[i].value;
  }
  return law == ScalingLaw::kGustafson ? value : 1 / value;
}

std::string ScalingLawName(ScalingLaw law) { return TextOf(law).name; }

absl::StatusOr<FittedLaw> FitScalingLaw(ScalingLaw law,
                                        absl::Span<const ScalingPoint> points,
                                        const BootstrapConfig& config) {
  RETURN_IF_ERROR(CheckPoints(law, points));
  const std::vector<LogPoint> logs = LogPoints(points);
  const std::vector<Observed> observed =
      Speedups(logs, NumbersOf(logs, &LogPoint::mean));
  const Parameters values = Fit(law, observed);
  const std::vector<Interval> intervals = Intervals(law, logs, config);
  const std::vector<std::string>& names = TextOf(law).parameters;
  FittedLaw fitted;
  fitted.law = law;
  for (size_t i = 0; i < names.size(); ++i) {
    fitted.parameters.push_back({names[i], values[i], intervals[i]});
  }
  fitted.median_relative_error = MedianRelativeError(fitted, observed);
  return fitted;
}

double KarpFlatt(double speedup, double ranks) {
  assert(speedup > 0 && ranks > 1);
  return (1 / speedup - 1 / ranks) / (1 - 1 / ranks);
}

}  // namespace rankwise
