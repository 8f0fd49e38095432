#include "analysis/prediction/simulated_layout.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int kDraws = 400;
constexpr uint64_t kSeed = 6;
constexpr size_t kMostSamples = 500;  // of a run; more are thinned out
constexpr double kNormal95 = 1.959964;

using Samples = std::vector<StepSample>;

std::vector<Samples> Thinned(absl::Span<const Samples> runs) {
  std::vector<Samples> thinned;
  for (const Samples& run : runs) {
    const size_t stride = (run.size() + kMostSamples - 1) / kMostSamples;
    Samples& kept = thinned.emplace_back();
    for (size_t i = 0; i < run.size(); i += stride) kept.push_back(run[i]);
  }
  return thinned;
}

// The sample with communication `z` standard deviations dearer.
double At(const StepSample& sample, double z) {
  const double side = z < 0 ? sample.seconds - sample.low_seconds
                            : sample.high_seconds - sample.seconds;
  return sample.seconds + z / kNormal95 * side;
}

std::vector<double> SecondsAt(const Samples& run, double z) {
  std::vector<double> values;
  values.reserve(run.size());
  for (const StepSample& sample : run) values.push_back(At(sample, z));
  return values;
}

struct Center {
  double median = 0;  // over runs, of their medians
  double noise = 0;   // what the slowest of the ranks adds to it
};

Center CenterOf(const std::vector<std::vector<double>>& runs, int64_t ranks) {
  std::vector<double> medians, deviations;
  for (const std::vector<double>& run : runs) {
    medians.push_back(Median(run));
    for (double value : run) deviations.push_back(value - medians.back());
  }
  Center center;
  center.median = Median(medians);
  if (ranks > 1) {
    const double n = static_cast<double>(ranks);
    const double slowest = Quantile(deviations, std::pow(0.5, 1 / n));
    center.noise = std::max(0.0, slowest - Median(deviations));
  }
  return center;
}

Interval DrawInterval(const std::vector<Samples>& runs, int64_t ranks,
                      double model_deviation) {
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  std::vector<double> medians;
  for (const Samples& run : runs) medians.push_back(Median(SecondsAt(run, 0)));
  const double count = static_cast<double>(runs.size());
  const double spread =
      runs.size() < 2 ? 0
                      : StandardDeviation(medians) * std::sqrt(1 + 1 / count);
  std::student_t_distribution<double> student(std::max(1.0, count - 1));
  std::vector<double> draws;
  for (int i = 0; i < kDraws; ++i) {
    const double z = normal(random);
    std::vector<std::vector<double>> resampled;
    for (const Samples& run : runs) {
      std::uniform_int_distribution<size_t> pick(0, run.size() - 1);
      std::vector<double>& values = resampled.emplace_back();
      for (size_t k = 0; k < run.size(); ++k) {
        values.push_back(At(run[pick(random)], z));
      }
    }
    const Center center = CenterOf(resampled, ranks);
    double step = center.median + center.noise;
    if (model_deviation > 0) step *= 1 + model_deviation * normal(random);
    draws.push_back(step + spread * student(random));
  }
  return {std::max(0.0, Quantile(draws, 0.025)), Quantile(draws, 0.975)};
}

}  // namespace

absl::Status CallCosts::Prepare(double bytes) {
  if (world_size_ == 1 || estimates_.count(bytes) > 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CostEstimate estimate,
                   network_.Estimate(collective_, bytes, world_size_));
  extrapolated_ |= estimate.extrapolated;
  estimates_.emplace(bytes, estimate);
  return absl::OkStatus();
}

double CallCosts::Seconds(double bytes, CostSide side) const {
  if (world_size_ == 1) return 0;
  const CostEstimate& estimate = estimates_.at(bytes);
  if (side == CostSide::kLow) return estimate.interval.low;
  return side == CostSide::kHigh ? estimate.interval.high : estimate.seconds;
}

StepEstimate EstimateStep(absl::Span<const std::vector<StepSample>> runs,
                          int64_t ranks, double model_deviation) {
  const std::vector<Samples> thinned = Thinned(runs);
  std::vector<std::vector<double>> values;
  std::vector<double> exposed, bubbles;
  for (const Samples& run : thinned) {
    values.push_back(SecondsAt(run, 0));
    for (const StepSample& sample : run) {
      exposed.push_back(sample.exposed_comm_seconds);
      bubbles.push_back(sample.bubble_seconds);
    }
  }
  const Center center = CenterOf(values, ranks);
  StepEstimate estimate;
  estimate.seconds = center.median + center.noise;
  estimate.noise_seconds = center.noise;
  estimate.exposed_comm_seconds = Median(exposed);
  estimate.bubble_seconds = Median(bubbles);
  estimate.interval = DrawInterval(thinned, ranks, model_deviation);
  estimate.interval.low = std::min(estimate.interval.low, estimate.seconds);
  estimate.interval.high = std::max(estimate.interval.high, estimate.seconds);
  return estimate;
}

}  // namespace rankwise
