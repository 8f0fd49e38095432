#include "analysis/cost_model/robust_fit.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <optional>

namespace rankwise {
namespace {

constexpr double kHuber = 1.345;
constexpr int kMaxSteps = 40;
constexpr double kConverged = 1e-5;  // relative change of all coefficients
constexpr double kLongestStep = 0.5;
// Of the measured time; what is predicted may be 0, which has no logarithm.
constexpr double kNearestToZero = 1e-9;
constexpr double kSingular = 1e-12;  // of columns scaled to length 1

using Matrix = std::array<Terms, kMaxTerms>;

// The weighted normal equations, columns scaled to length 1.
struct NormalEquations {
  Matrix squares = {};
  Terms right = {};
  Terms scale = {};
};

// One row of a step towards the fit: `target` is aimed at with `weight`.
struct WeightedRow {
  double target = 0;
  double weight = 0;
};

// Of the first step: relative least squares.
WeightedRow RelativeRow(const Observation& row) {
  const double unit = row.relative_sigma * row.seconds;
  return {row.seconds, 1 / (unit * unit)};
}

// The logarithm is straightened about the current fit, which is good for steps
// up to kLongestStep; a longer way is gone in such steps, with the weight that
// leaves Huber's psi, and so the fit, as they are.
WeightedRow LogRow(const Observation& row, const Terms& current) {
  const double predicted =
      std::max(Predict(current, row.terms), row.seconds * kNearestToZero);
  const double residual = std::log(row.seconds / predicted);
  const double step = std::clamp(residual, -kLongestStep, kLongestStep);
  const double limit = kHuber * row.relative_sigma;
  const double psi = std::clamp(residual, -limit, limit);
  const double unit = row.relative_sigma * predicted;
  const double weight = step == 0 ? 1 : psi / step;
  return {predicted * (1 + step), weight / (unit * unit)};
}

NormalEquations MakeEquations(absl::Span<const Observation> rows, int terms,
                              const Terms* current) {
  NormalEquations eq;
  for (const Observation& row : rows) {
    const WeightedRow weighted =
        current == nullptr ? RelativeRow(row) : LogRow(row, *current);
    for (int i = 0; i < terms; ++i) {
      const double term = weighted.weight * row.terms[i];
      for (int j = 0; j <= i; ++j) eq.squares[i][j] += term * row.terms[j];
      eq.right[i] += term * weighted.target;
    }
  }
  for (int i = 0; i < terms; ++i) eq.scale[i] = std::sqrt(eq.squares[i][i]);
  for (int i = 0; i < terms; ++i) {
    if (eq.scale[i] == 0) continue;
    eq.right[i] /= eq.scale[i];
    for (int j = 0; j <= i; ++j) {
      if (eq.scale[j] > 0) eq.squares[i][j] /= eq.scale[i] * eq.scale[j];
      eq.squares[j][i] = eq.squares[i][j];
    }
  }
  return eq;
}

// Cholesky over the coefficients in the set `used`; the others are 0. None
// where the rows do not tell these apart.
std::optional<Terms> SolveSubset(const NormalEquations& eq, int terms,
                                 unsigned used) {
  Matrix lower = {};
  Terms forward = {};
  for (int i = 0; i < terms; ++i) {
    if ((used >> i & 1) == 0) continue;
    double right = eq.right[i];
    for (int j = 0; j <= i; ++j) {
      if ((used >> j & 1) == 0) continue;
      double sum = eq.squares[i][j];
      for (int k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      if (i == j) {
        if (sum < kSingular) return std::nullopt;
        lower[i][i] = std::sqrt(sum);
      } else {
        lower[i][j] = sum / lower[j][j];
        right -= lower[i][j] * forward[j];
      }
    }
    forward[i] = right / lower[i][i];
  }
  Terms solution = {};
  for (int i = terms - 1; i >= 0; --i) {
    if ((used >> i & 1) == 0) continue;
    double sum = forward[i];
    for (int k = i + 1; k < terms; ++k) sum -= lower[k][i] * solution[k];
    solution[i] = sum / lower[i][i];
  }
  return solution;
}

// The least squares among coefficients that are not negative.
Terms SolveNonNegative(const NormalEquations& eq, int terms) {
  const unsigned all = (1u << terms) - 1;
  Terms best = {};
  double best_gain = 0;  // of the sum of squares, over all coefficients at 0
  for (unsigned used = all; used > 0; --used) {
    const std::optional<Terms> solution = SolveSubset(eq, terms, used);
    if (!solution.has_value()) continue;
    double gain = 0;
    bool negative = false;
    for (int i = 0; i < terms; ++i) {
      negative = negative || (*solution)[i] < 0;
      gain += (*solution)[i] * eq.right[i];
    }
    if (negative || gain <= best_gain) continue;
    best_gain = gain;
    best = *solution;
    if (used == all) break;  // no constraint binds
  }
  for (int i = 0; i < terms; ++i) {
    if (eq.scale[i] > 0) best[i] /= eq.scale[i];
  }
  return best;
}

bool IsClose(const Terms& a, const Terms& b) {
  for (int i = 0; i < kMaxTerms; ++i) {
    if (std::abs(a[i] - b[i]) > kConverged * std::max(a[i], b[i])) return false;
  }
  return true;
}

// E[min(z^2, kWinsor^2)] of a standard normal z.
constexpr double kWinsor = 2;
constexpr double kWinsorisedVariance = 0.92054;

double WinsorisedSum(absl::Span<const double> residuals,
                     absl::Span<const double> sigmas, double spread) {
  double sum = 0;
  for (size_t i = 0; i < residuals.size(); ++i) {
    const double variance = sigmas[i] * sigmas[i] + spread * spread;
    const double square = residuals[i] * residuals[i];
    if (square == 0) continue;
    sum += std::min(square / variance, kWinsor * kWinsor);
  }
  return sum;
}

}  // namespace

double Predict(const Terms& coefficients, const Terms& terms) {
  double sum = 0;
  for (int i = 0; i < kMaxTerms; ++i) sum += coefficients[i] * terms[i];
  return sum;
}

double LogResidual(const Terms& coefficients, const Observation& row) {
  const double predicted = Predict(coefficients, row.terms);
  return std::log(row.seconds /
                  std::max(predicted, row.seconds * kNearestToZero));
}

Terms RobustFit(absl::Span<const Observation> rows, int terms,
                const Terms* start) {
  assert(terms >= 1 && terms <= kMaxTerms);
  Terms fit =
      start != nullptr
          ? *start
          : SolveNonNegative(MakeEquations(rows, terms, nullptr), terms);
  for (int step = 0; step < kMaxSteps; ++step) {
    const Terms next =
        SolveNonNegative(MakeEquations(rows, terms, &fit), terms);
    const bool converged = IsClose(fit, next);
    fit = next;
    if (converged) break;
  }
  return fit;
}

double ExcessSpread(absl::Span<const double> residuals,
                    absl::Span<const double> relative_sigmas,
                    double degrees_of_freedom) {
  const double expected = degrees_of_freedom * kWinsorisedVariance;
  if (WinsorisedSum(residuals, relative_sigmas, 0) <= expected) return 0;
  double low = 0, high = 0;
  for (const double residual : residuals) {
    high += std::abs(residual) / std::sqrt(expected);
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const bool too_small =
        WinsorisedSum(residuals, relative_sigmas, middle) > expected;
    (too_small ? low : high) = middle;
  }
  return high;
}

}  // namespace rankwise
