// Small linear fits in which errors are shares of what was observed.

#ifndef ANALYSIS_LINEAR_FIT_H_
#define ANALYSIS_LINEAR_FIT_H_

#include <vector>

#include "absl/types/span.h"

namespace rankwise {

// observed = fixed + factors * parameters, with observed > 0 and one or two
// factors, as many in every observation of a fit.
struct LinearObservation {
  double observed = 1;
  double fixed = 0;
  std::vector<double> factors;
};

// The parameters of which the squares of the relative errors are least,
// whatever their signs; not finite where the observations do not determine
// them.
std::vector<double> FitRelative(absl::Span<const LinearObservation> points);

// Likewise, of parameters that are not negative. Every factor must be other
// than 0 in some observation.
std::vector<double> FitRelativeNotNegative(
    absl::Span<const LinearObservation> points);

}  // namespace rankwise

#endif  // ANALYSIS_LINEAR_FIT_H_
