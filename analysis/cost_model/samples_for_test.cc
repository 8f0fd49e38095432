#include "analysis/cost_model/samples_for_test.h"

#include <cmath>
#include <cstdio>

namespace rankwise {
namespace {

// Solves Phi(z) = p by bisection.
double NormalQuantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::sqrt(2.0)) / 2;
    (below < p ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::vector<double> CallsForTest(double seconds, const NoiseForTest& noise,
                                 std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  // The tail lies above the median, which is then a higher quantile of the
  // rest.
  const double shift = noise.spread * NormalQuantile(0.5 / (1 - noise.tail));
  const double middle =
      seconds * std::exp(noise.deviation * normal(random) - shift);
  std::vector<double> calls;
  for (int i = 0; i < noise.calls; ++i) {
    double call = middle * std::exp(noise.spread * normal(random));
    if (uniform(random) < noise.tail) {
      call = middle * std::exp(shift) * (1.5 + 10 * uniform(random));
    }
    calls.push_back(call);
  }
  return calls;
}

void ShareForTest::Add(bool held) {
  ++trials_;
  if (held) ++held_;
}

double ShareForTest::share() const {
  return static_cast<double>(held_) / trials_;
}

std::string ShareForTest::ToString(const std::string& what) const {
  char text[200];
  std::snprintf(text, sizeof(text), "%s: %.1f %% of %d", what.c_str(),
                100 * share(), trials_);
  return text;
}

}  // namespace rankwise
