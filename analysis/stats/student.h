// Student's t distribution, for intervals from few values.

#ifndef ANALYSIS_STATS_STUDENT_H_
#define ANALYSIS_STATS_STUDENT_H_

namespace rankwise {

// P(|T| > t) of Student's t distribution (Abramowitz and Stegun 1964, 26.7.1).
// Degrees of freedom need not be whole. Requires t >= 0 and
// degrees_of_freedom >= 1.
double StudentTwoSidedP(double t, double degrees_of_freedom);

// The t with P(|T| > t) == p. Requires 1e-9 <= p < 1.
double StudentTwoSidedQuantile(double p, double degrees_of_freedom);

}  // namespace rankwise

#endif  // ANALYSIS_STATS_STUDENT_H_
