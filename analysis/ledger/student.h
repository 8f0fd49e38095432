// Student's t distribution, for intervals from few values.

#ifndef ANALYSIS_LEDGER_STUDENT_H_
#define ANALYSIS_LEDGER_STUDENT_H_

namespace rankwise {

// P(|T| > t) of Student's t with so many degrees of freedom, by the finite
// series of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4. Requires t >= 0
// and degrees_of_freedom >= 1.
double StudentTwoSidedP(double t, int degrees_of_freedom);

// The t with P(|T| > t) == p. Requires 1e-9 <= p < 1.
double StudentTwoSidedQuantile(double p, int degrees_of_freedom);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_STUDENT_H_
