#include "analysis/ledger/ledger.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "analysis/ledger/expected_maximum.h"
#include "analysis/ledger/step_parts.h"
#include "analysis/stats/statistics.h"

namespace rankwise {
namespace {

// More say nothing more about the slowest of a step: it is known to less than
// a hundredth of the ranks' deviation.
constexpr size_t kStepsForNoise = 1 << 16;

void Add(const LedgerParts& parts, LedgerParts* sum) {
  sum->compute_seconds += parts.compute_seconds;
  sum->exposed_comm_seconds += parts.exposed_comm_seconds;
  sum->bubble_seconds += parts.bubble_seconds;
  sum->data_wait_seconds += parts.data_wait_seconds;
  sum->residual_seconds += parts.residual_seconds;
}

LedgerParts Over(const LedgerParts& sum, size_t count) {
  const double n = static_cast<double>(count);
  return {sum.compute_seconds / n, sum.exposed_comm_seconds / n,
          sum.bubble_seconds / n, sum.data_wait_seconds / n,
          sum.residual_seconds / n};
}

std::vector<double> ComputeSeconds(const Place& place) {
  std::vector<double> seconds;
  seconds.reserve(place.steps.size());
  for (const LedgerParts& parts : place.steps) {
    seconds.push_back(parts.compute_seconds);
  }
  return seconds;
}

double WaitingSeconds(const LedgerParts& parts) {
  return parts.exposed_comm_seconds + parts.bubble_seconds;
}

// Where all waited alike, or none did, the one that takes longest in all.
const LedgerParts& CriticalOf(const std::vector<Place>& places, size_t longest,
                              size_t step) {
  const LedgerParts* critical = &places[longest].steps[step];
  for (const Place& place : places) {
    if (WaitingSeconds(place.steps[step]) < WaitingSeconds(*critical)) {
      critical = &place.steps[step];
    }
  }
  return *critical;
}

// Ledger::critical, from `ranks`, which are the means of `places`.
LedgerParts MeasureCritical(const std::vector<Place>& places,
                            const std::vector<RankLedger>& ranks) {
  const auto longest = std::max_element(
      ranks.begin(), ranks.end(), [](const RankLedger& a, const RankLedger& b) {
        return a.parts.Total() < b.parts.Total();
      });
  const size_t steps = places[0].steps.size();
  LedgerParts sum;
  for (size_t i = 0; i < steps; ++i) {
    Add(CriticalOf(places, longest - ranks.begin(), i), &sum);
  }
  LedgerParts critical = Over(sum, steps);
  // Ranks leave a step's waiting together. What the next step's critical rank
  // does from there to the step's end (the optimizer) is in its record of the
  // step before, in which another rank may have been critical.
  critical.compute_seconds += longest->parts.Total() - critical.Total();
  return critical;
}

std::vector<RankLedger> MeasureRanks(
    const std::vector<Place>& places,
    const std::vector<std::vector<double>>& compute) {
  std::vector<RankLedger> ranks;
  for (size_t i = 0; i < places.size(); ++i) {
    LedgerParts sum;
    for (const LedgerParts& parts : places[i].steps) Add(parts, &sum);
    ranks.push_back({places[i].rank, places[i].stage,
                     Over(sum, places[i].steps.size()), Median(compute[i])});
  }
  return ranks;
}

// The slowest of a step's ranks, were each drawn from its own steps, beyond the
// one that is slowest on the whole.
double SlowestByChance(const std::vector<std::vector<double>>& compute) {
  const size_t stride = (compute[0].size() - 1) / kStepsForNoise + 1;
  std::vector<std::vector<double>> samples(compute.size());
  double slowest = 0;
  for (size_t rank = 0; rank < compute.size(); ++rank) {
    double sum = 0;
    for (size_t i = 0; i < compute[rank].size(); i += stride) {
      samples[rank].push_back(compute[rank][i]);
      sum += compute[rank][i];
    }
    slowest =
        std::max(slowest, sum / static_cast<double>(samples[rank].size()));
  }
  return ExpectedMaximum(samples) - slowest;
}

// Fills imbalance_seconds and noise_seconds from `ranks` and `critical`.
void MeasureImbalance(const std::vector<std::vector<double>>& compute,
                      Ledger* ledger) {
  double sum = 0, slowest = 0;
  for (const RankLedger& rank : ledger->ranks) {
    sum += rank.parts.compute_seconds;
    slowest = std::max(slowest, rank.parts.compute_seconds);
  }
  const double mean = sum / static_cast<double>(ledger->ranks.size());
  ledger->imbalance_seconds = ledger->critical.compute_seconds - mean;
  if (compute.size() < 2) return;
  const double beyond_means = ledger->imbalance_seconds - (slowest - mean);
  ledger->noise_seconds =
      std::max(0.0, std::min(SlowestByChance(compute), beyond_means));
}

double MedianResidualShare(const std::vector<Place>& places) {
  std::vector<double> shares;
  shares.reserve(places.size() * places[0].steps.size());
  for (const Place& place : places) {
    for (const LedgerParts& parts : place.steps) {
      const double step = parts.Total();
      if (step > 0) shares.push_back(std::abs(parts.residual_seconds) / step);
    }
  }
  return Median(shares);
}

}  // namespace

absl::StatusOr<Ledger> MeasureLedger(const RunTrace& run,
                                     const ThroughputConfig& config) {
  absl::Status status = CheckMeasurable(run, config);
  if (!status.ok()) return status;
  absl::StatusOr<std::vector<Place>> places =
      ReadPlaces(run, static_cast<size_t>(config.warmup_steps));
  if (!places.ok()) return places.status();

  std::vector<std::vector<double>> compute;
  for (const Place& place : *places) compute.push_back(ComputeSeconds(place));
  const size_t steps = compute[0].size();
  Ledger ledger;
  ledger.ranks = MeasureRanks(*places, compute);
  ledger.critical = MeasureCritical(*places, ledger.ranks);
  MeasureImbalance(compute, &ledger);
  for (const Place& place : *places) {
    ledger.optimizer_seconds += place.optimizer_seconds;
    ledger.captured_seconds += place.captured_seconds;
    ledger.separates_bubble &= place.separates_bubble;
  }
  ledger.optimizer_seconds /= static_cast<double>(steps * places->size());
  ledger.captured_seconds /= static_cast<double>(steps * places->size());
  ledger.median_residual_share = MedianResidualShare(*places);
  return ledger;
}

}  // namespace rankwise
