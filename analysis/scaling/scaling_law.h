// Laws of scaling fitted to speedups: how much of the work does not scale.
#ifndef RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
#define RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

enum class ScalingLaw {
  kAmdahl,     // S = 1 / (s + (1 - s) / N): strong scaling (Amdahl 1967)
  kGustafson,  // S = N - s (N - 1): weak scaling (Gustafson 1988)
  kUsl,        // S = N / (1 + a (N - 1) + b N (N - 1)) (Gunther 1993)
};

// Throughput of one world size, a value per repetition. Ranks count in units of
// the base's.
struct ScalingPoint {
  double ranks = 1;
  std::vector<double> throughputs;
};

struct BootstrapConfig {
  int resamples = 10000;
  uint64_t seed = 0;  // equal seeds and points give equal intervals
};

struct LawParameter {
  std::string name;  // "serial fraction", "contention", "coherency"
  double value = 0;
  Interval interval;  // 95 %: see FitScalingLaw
};

struct FittedLaw {
  ScalingLaw law = ScalingLaw::kAmdahl;
  std::vector<LawParameter> parameters;
  double median_relative_error = 0;  // of the speedups at the points

  double Speedup(double ranks) const;
};

std::string ScalingLawName(ScalingLaw law);

// Fits the ratios of the points' geometric means to the base's, which `points`
// holds once, at ranks 1, by least squares of relative errors. Serial fractions
// lie between 0 and 1, coefficients are not negative.
//
// The intervals are the parametric bootstrap of docs/metrics.md: they hold the
// spread of repetitions, not the law's own misfit, which is
// median_relative_error. A true value of 0 is covered in (nominally) 97.5 % of
// cases or more: only the lower end can miss it.
//
// FailedPrecondition where there are fewer distinct world sizes above the base
// than parameters, or a point has fewer than 2 repetitions. InvalidArgument
// without the base, below 1 rank, or for throughputs that are not above 0.
absl::StatusOr<FittedLaw> FitScalingLaw(ScalingLaw law,
                                        absl::Span<const ScalingPoint> points,
                                        const BootstrapConfig& config = {});

// The serial fraction that one speedup S on N > 1 ranks stands for:
// (1/S - 1/N) / (1 - 1/N) (Karp and Flatt 1990). Where it grows with N, the
// loss is overhead, not serial work.
double KarpFlatt(double speedup, double ranks);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
