#include "comm_bench/sweep/cost_fit.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/stats/statistics.h"

namespace rankwise::comm_bench {
namespace {

constexpr size_t kMinSizes = 3;

std::vector<CostPoint> WithTime(absl::Span<const CostPoint> points) {
  std::vector<CostPoint> kept;
  for (const CostPoint& point : points) {
    if (point.seconds > 0) kept.push_back(point);
  }
  return kept;
}

std::vector<double> RelativeErrors(const CostFit& fit,
                                   const std::vector<CostPoint>& points) {
  std::vector<double> errors;
  for (const CostPoint& point : points) {
    errors.push_back(std::abs(fit.SecondsFor(point.bytes) / point.seconds - 1));
  }
  return errors;
}

CostFit Through(const CostPoint& a, const CostPoint& b) {
  CostFit fit;
  fit.beta_seconds_per_byte = (b.seconds - a.seconds) / (b.bytes - a.bytes);
  fit.alpha_seconds = a.seconds - fit.beta_seconds_per_byte * a.bytes;
  return fit;
}

// Every line that could be the best.
std::vector<CostFit> Candidates(const std::vector<CostPoint>& points) {
  std::vector<CostFit> candidates;
  for (size_t i = 0; i < points.size(); ++i) {
    candidates.push_back({.alpha_seconds = points[i].seconds});
    if (points[i].bytes > 0) {
      candidates.push_back(Through({0, 0}, points[i]));
    }
    for (size_t j = 0; j < i; ++j) {
      if (points[i].bytes == points[j].bytes) continue;
      const CostFit fit = Through(points[i], points[j]);
      if (fit.alpha_seconds >= 0 && fit.beta_seconds_per_byte >= 0) {
        candidates.push_back(fit);
      }
    }
  }
  return candidates;
}

}  // namespace

absl::StatusOr<CostFit> FitCost(absl::Span<const CostPoint> points) {
  const std::vector<CostPoint> kept = WithTime(points);
  std::set<double> sizes;
  for (const CostPoint& point : kept) sizes.insert(point.bytes);
  if (sizes.size() < kMinSizes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "latency and bandwidth cannot be separated from ", sizes.size(),
        " distinct sizes: measure at least ", kMinSizes));
  }
  CostFit best;
  double least = std::numeric_limits<double>::infinity();
  for (CostFit& fit : Candidates(kept)) {
    double sum = 0;
    for (const double error : RelativeErrors(fit, kept)) sum += error;
    if (sum >= least) continue;
    least = sum;
    best = fit;
  }
  best.median_relative_error = Median(RelativeErrors(best, kept));
  return best;
}

std::string FormatCostFit(const CostFit& fit) {
  const double beta_ns = fit.beta_seconds_per_byte * 1e9;
  const std::string bandwidth =
      beta_ns > 0 ? absl::StrFormat(" (%.4g GB/s)", 1 / beta_ns) : "";
  return absl::StrFormat(
      "alpha %.2f us, beta %.4g ns/B%s, median error %.1f %%",
      fit.alpha_seconds * 1e6, beta_ns, bandwidth,
      fit.median_relative_error * 100);
}

}  // namespace rankwise::comm_bench
