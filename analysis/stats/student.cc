#include "analysis/stats/student.h"

#include <cmath>
#include <limits>

namespace rankwise {
namespace {

// The regularised incomplete beta function I_x(a, b), by the series of DLMF
// 8.17.8 (https://dlmf.nist.gov/8.17), whose terms are all positive.
double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  double term = std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta) / a;
  double sum = 0;
  for (double k = 0; term > sum * std::numeric_limits<double>::epsilon(); ++k) {
    sum += term;
    term *= x * (a + b + k) / (a + 1 + k);
  }
  return sum;
}

}  // namespace

double StudentTwoSidedP(double t, double degrees_of_freedom) {
  const double all = degrees_of_freedom + t * t;
  const double half = degrees_of_freedom / 2;
  const double x = degrees_of_freedom / all, rest = t * t / all;
  // The tail itself where it is small; elsewhere the other series is shorter.
  const bool small = x < 0.5 || half * rest > 10;
  return small ? IncompleteBeta(half, 0.5, x)
               : 1 - IncompleteBeta(0.5, half, rest);
}

double StudentTwoSidedQuantile(double p, double degrees_of_freedom) {
  double low = 0, high = 1;
  while (StudentTwoSidedP(high, degrees_of_freedom) > p) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (StudentTwoSidedP(middle, degrees_of_freedom) > p ? low : high) = middle;
  }
  return high;
}

}  // namespace rankwise
