#include "analysis/linear_fit.h"

#include <algorithm>
#include <cmath>

namespace rankwise {
namespace {

// The normal equations a p = b; of one parameter only a00 and b0.
struct NormalEquations {
  double a00 = 0, a01 = 0, a11 = 0, b0 = 0, b1 = 0;
  bool one = false;
};

NormalEquations EquationsOf(absl::Span<const LinearObservation> points) {
  NormalEquations sums;
  for (const LinearObservation& point : points) {
    sums.one = point.factors.size() == 1;
    const double x0 = point.factors[0] / point.observed;
    const double x1 = sums.one ? 0 : point.factors[1] / point.observed;
    const double y = 1 - point.fixed / point.observed;
    sums.a00 += x0 * x0;
    sums.a01 += x0 * x1;
    sums.a11 += x1 * x1;
    sums.b0 += x0 * y;
    sums.b1 += x1 * y;
  }
  return sums;
}

std::vector<double> Solve(const NormalEquations& s) {
  if (s.one) return {s.b0 / s.a00};
  const double determinant = s.a00 * s.a11 - s.a01 * s.a01;
  return {(s.b0 * s.a11 - s.b1 * s.a01) / determinant,
          (s.b1 * s.a00 - s.b0 * s.a01) / determinant};
}

// The better of the two edges, on which one of two parameters is 0.
std::vector<double> SolveOnEdge(const NormalEquations& s) {
  const double p0 = std::max(0.0, s.b0 / s.a00);
  const double p1 = std::max(0.0, s.b1 / s.a11);
  // By how much each lowers the sum of squares.
  const double gain0 = p0 * (2 * s.b0 - p0 * s.a00);
  const double gain1 = p1 * (2 * s.b1 - p1 * s.a11);
  return gain0 >= gain1 ? std::vector<double>{p0, 0}
                        : std::vector<double>{0, p1};
}

}  // namespace

std::vector<double> FitRelative(absl::Span<const LinearObservation> points) {
  return Solve(EquationsOf(points));
}

std::vector<double> FitRelativeNotNegative(
    absl::Span<const LinearObservation> points) {
  const NormalEquations equations = EquationsOf(points);
  const std::vector<double> free = Solve(equations);
  if (equations.one) return {std::max(0.0, free[0])};
  const bool allowed = std::all_of(free.begin(), free.end(), [](double p) {
    return std::isfinite(p) && p >= 0;
  });
  return allowed ? free : SolveOnEdge(equations);
}

}  // namespace rankwise
