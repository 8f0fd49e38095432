// Linear models with coefficients that are not negative, fitted to times by
// their ratios, so that microseconds and seconds weigh alike.

#ifndef ANALYSIS_COST_MODEL_ROBUST_FIT_H_
#define ANALYSIS_COST_MODEL_ROBUST_FIT_H_

#include <array>

#include "absl/types/span.h"

namespace rankwise {

inline constexpr int kMaxTerms = 4;
using Terms = std::array<double, kMaxTerms>;

// A measured time, and what the coefficients are multiplied with.
struct Observation {
  Terms terms = {};
  double seconds = 0;         // above 0
  double relative_sigma = 0;  // standard error of `seconds` over it, above 0
};

// Terms beyond those that a model uses are 0.
double Predict(const Terms& coefficients, const Terms& terms);

// log(measured / predicted): an error of -50 % is as far off as one of 100 %.
double LogResidual(const Terms& coefficients, const Observation& row);

// Minimises the sum of Huber's loss (1964; k = 1.345, which costs 5 % of the
// efficiency where no row is far off) of LogResidual / relative_sigma over the
// first `terms` coefficients, none negative: iteratively reweighted least
// squares (Holland and Welsch 1977), each step solved by trying all sets of
// coefficients that may be 0. Of terms that the rows do not tell apart, some
// get 0. Starts from the relative least squares, or from *start, which saves
// steps where the rows differ little from those that `start` was fitted to.
Terms RobustFit(absl::Span<const Observation> rows, int terms,
                const Terms* start = nullptr);

// The spread that the rows have beyond their relative_sigma: the t of a
// relative variance relative_sigma^2 + t^2 with which the winsorised squares of
// the residuals add up to `degrees_of_freedom`, or 0 where they do so without.
// The random effect of a meta-regression (DerSimonian and Laird 1986), by a
// robust moment. `residuals` are relative or logarithms of ratios.
double ExcessSpread(absl::Span<const double> residuals,
                    absl::Span<const double> relative_sigmas,
                    double degrees_of_freedom);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_ROBUST_FIT_H_
