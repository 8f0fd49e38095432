#include "analysis/cost_model/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/cost_model/change_points.h"
#include "analysis/cost_model/launch_spread.h"
#include "analysis/cost_model/resampled_fit.h"
#include "analysis/cost_model/robust_fit.h"
#include "analysis/stats/sample_median.h"

namespace rankwise {
namespace {

// A size's median is never taken to be more exact than this.
constexpr double kFinest = 0.003;
// A change has to matter: sizes that lie this far from a line, or less, are not
// held against it. Machines drift by so much from one minute to the next.
constexpr double kLeastSpread = 0.03;

// A size's samples as one.
struct Point {
  double bytes = 0;
  SampleMedian median;
};

// Moves the resamples of all points as other launches might have.
void MoveByLaunches(const LaunchSpread& spread, std::mt19937_64& random,
                    std::vector<Point>* points) {
  if (spread.relative_error == 0 || points->empty()) return;
  const size_t resamples = points->front().median.redrawn.size();
  for (size_t i = 0; i < resamples; ++i) {
    const double factor = DrawLaunchFactor(spread, random);
    for (Point& point : *points) point.median.redrawn[i] *= factor;
  }
  for (Point& point : *points) SetInterval(&point.median);
}

std::vector<Point> BySize(absl::Span<const CostSamples> samples,
                          const CostFitConfig& config) {
  std::map<double, std::vector<double>> seconds_of_size;
  for (const CostSamples& some : samples) {
    std::vector<double>& all = seconds_of_size[some.bytes];
    all.insert(all.end(), some.seconds.begin(), some.seconds.end());
  }
  std::mt19937_64 random(config.seed);
  std::vector<Point> points;
  for (const auto& [bytes, seconds] : seconds_of_size) {
    if (seconds.empty()) continue;
    Point point = {bytes, BootstrapMedian(seconds, config.resamples, random)};
    if (point.median.median > 0) points.push_back(std::move(point));
  }
  MoveByLaunches(SpreadOfLaunches(samples), random, &points);
  return points;
}

std::vector<Observation> ObservationsOf(const std::vector<Point>& points) {
  std::vector<Observation> rows;
  for (const Point& point : points) {
    rows.push_back(PointOfLine(point.bytes, point.median.median,
                               std::max(point.median.relative_sigma, kFinest)));
  }
  return rows;
}

std::vector<size_t> PiecesOf(std::vector<Observation> rows,
                             const CostFitConfig& config) {
  const double spread = std::max(LocalSpread(rows), kLeastSpread);
  for (Observation& row : rows) {
    row.relative_sigma = std::hypot(row.relative_sigma, spread);
  }
  return FindPieces(rows, config.max_segments, config.min_points_per_segment);
}

// Segments without gaps; the place between two sizes is not known, and set to
// their geometric mean.
std::vector<CostSegment> SegmentsOf(const std::vector<Point>& points,
                                    const std::vector<size_t>& starts,
                                    const ResampledFit& fit) {
  std::vector<CostSegment> segments;
  for (size_t i = 0; i < starts.size(); ++i) {
    const FittedPiece& piece = fit.pieces[i];
    CostSegment segment;
    segment.alpha_seconds = piece.coefficients[0];
    segment.beta_seconds_per_byte = piece.coefficients[1];
    segment.alpha_interval = piece.intervals[0];
    segment.beta_interval = piece.intervals[1];
    if (i > 0) {
      segment.min_bytes =
          std::sqrt(points[starts[i] - 1].bytes * points[starts[i]].bytes);
      segments.back().max_bytes = segment.min_bytes;
    }
    segments.push_back(segment);
  }
  return segments;
}

double MedianRelativeError(const CostCurve& curve) {
  std::vector<double> errors;
  for (const CostPoint& point : curve.points) {
    errors.push_back(
        std::abs(curve.SecondsFor(point.bytes) / point.median_seconds - 1));
  }
  return Median(errors);
}

}  // namespace

double CostCurve::SecondsFor(double bytes) const {
  const CostSegment& segment = SegmentFor(bytes);
  return segment.alpha_seconds + segment.beta_seconds_per_byte * bytes;
}

const CostSegment& CostCurve::SegmentFor(double bytes) const {
  for (const CostSegment& segment : segments) {
    if (bytes < segment.max_bytes) return segment;
  }
  return segments.back();
}

CostCurve ConstantCurve(absl::Span<const CostSamples> samples,
                        const CostFitConfig& config) {
  CostCurve curve;
  CostSegment segment;
  for (const Point& point : BySize(samples, config)) {
    segment.alpha_seconds = point.median.median;
    segment.alpha_interval = point.median.interval;
    curve.points = {{point.bytes, point.median.median, point.median.interval}};
  }
  curve.segments = {segment};
  return curve;
}

absl::StatusOr<CostCurve> FitCostCurve(absl::Span<const CostSamples> samples,
                                       const CostFitConfig& config) {
  const std::vector<Point> points = BySize(samples, config);
  const auto least = static_cast<size_t>(config.min_points_per_segment);
  if (points.size() < least) {
    return absl::FailedPreconditionError(absl::StrCat(
        "latency and bandwidth cannot be told apart from ", points.size(),
        points.size() == 1 ? " size" : " sizes", ": measure at least ", least));
  }
  const std::vector<Observation> rows = ObservationsOf(points);
  const std::vector<size_t> starts = PiecesOf(rows, config);
  std::vector<absl::Span<const double>> redrawn;
  for (const Point& point : points) redrawn.push_back(point.median.redrawn);
  const ResampledFit fit =
      FitResampled(rows, redrawn, starts, /*terms=*/2, config.seed);
  CostCurve curve;
  for (const Point& point : points) {
    curve.points.push_back(
        {point.bytes, point.median.median, point.median.interval});
  }
  curve.segments = SegmentsOf(points, starts, fit);
  curve.median_relative_error = MedianRelativeError(curve);
  return curve;
}

}  // namespace rankwise
