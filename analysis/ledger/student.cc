#include "analysis/ledger/student.h"

#include <cmath>
#include <numbers>

namespace rankwise {

double StudentTwoSidedP(double t, int degrees_of_freedom) {
  const double angle = std::atan2(t, std::sqrt(degrees_of_freedom));
  const double cosine = std::cos(angle);
  const bool odd = degrees_of_freedom % 2 == 1;
  double term = odd ? cosine : 1;
  double sum = 0;
  for (int i = odd ? 3 : 2; i <= degrees_of_freedom; i += 2) {
    sum += term;
    term *= cosine * cosine * (i - 1) / i;
  }
  const double inside = sum * std::sin(angle);
  return 1 - (odd ? 2 / std::numbers::pi * (angle + inside) : inside);
}

double StudentTwoSidedQuantile(double p, int degrees_of_freedom) {
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
