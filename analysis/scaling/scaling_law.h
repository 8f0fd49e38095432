// Amdahl's law fitted to speedups: the fraction of the work that is serial.
#ifndef RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
#define RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// Throughput of one world size, one value per repetition. Ranks are relative to
// the base's.
struct ScalingPoint {
  double ranks = 1;
  std::vector<double> throughputs;
};

struct BootstrapConfig {
  int resamples = 10000;
  uint64_t seed = 0;  // equal seeds and points give equal intervals
};

// S = 1 / (s + (1 - s) / N) with serial fraction s (Amdahl 1967).
struct AmdahlsLaw {
  double serial_fraction = 0;
  Interval interval;                 // of s, 95 %, by FitAmdahl
  double median_relative_error = 0;  // of the points' speedups

  double Speedup(double ranks) const;
};

// Fits the ratios of the points' geometric means to the base's (exactly one
// point with ranks 1) by least squares of relative errors; s lies in [0, 1].
//
// The interval is the parametric bootstrap of docs/metrics.md: it contains the
// spread of repetitions, but not the law's misfit, which is
// median_relative_error. A true value of 0 is covered in (nominally) at least
// 97.5 % of cases: only the lower end can miss it.
//
// FailedPrecondition without a world size above the base's, or if a point has
// fewer than 2 repetitions. InvalidArgument without the base, for fewer ranks
// than 1, and for non-positive throughputs.
absl::StatusOr<AmdahlsLaw> FitAmdahl(absl::Span<const ScalingPoint> points,
                                     const BootstrapConfig& config = {});

// Returns the serial fraction corresponding to one speedup S on N > 1 ranks:
// (1/S - 1/N) / (1 - 1/N) (Karp and Flatt 1990). If it grows with N, the loss
// is overhead, not serial work.
double KarpFlatt(double speedup, double ranks);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_SCALING_SCALING_LAW_H_
