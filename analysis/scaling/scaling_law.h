// Amdahl's law fitted to speedups: how much of the work does not scale.
#ifndef RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
#define RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

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

// S = 1 / (s + (1 - s) / N) with the serial fraction s (Amdahl 1967).
struct AmdahlsLaw {
  double serial_fraction = 0;
  Interval interval;                 // of s, 95 %: see FitAmdahl
  double median_relative_error = 0;  // of the speedups at the points

  double Speedup(double ranks) const;
};

// Fits the ratios of the points' geometric means to the base's, which `points`
// holds once, at ranks 1, by least squares of relative errors; s lies between 0
// and 1.
//
// The interval is the parametric bootstrap of docs/metrics.md: it holds the
// spread of repetitions, not the law's own misfit, which is
// median_relative_error. A true value of 0 is covered in (nominally) 97.5 % of
// cases or more: only the lower end can miss it.
//
// FailedPrecondition without a world size above the base's, or where a point
// has fewer than 2 repetitions. InvalidArgument without the base, below 1 rank,
// or for throughputs that are not above 0.
absl::StatusOr<AmdahlsLaw> FitAmdahl(absl::Span<const ScalingPoint> points,
                                     const BootstrapConfig& config = {});

// The serial fraction that one speedup S on N > 1 ranks stands for:
// (1/S - 1/N) / (1 - 1/N) (Karp and Flatt 1990). Where it grows with N, the
// loss is overhead, not serial work.
double KarpFlatt(double speedup, double ranks);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
