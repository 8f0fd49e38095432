#include "analysis/cost_model/loggp.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/resampled_fit.h"
#include "analysis/cost_model/robust_fit.h"
#include "analysis/stats/sample_median.h"

namespace rankwise {
namespace {

constexpr double kFinest = 0.003;  // of a median's relative error
constexpr size_t kMinSizes = 3;

// The rows of one world size.
struct Messages {
  std::vector<const CollectiveSamples*> ping_pong, send_recv;
};

bool Suffices(const Messages& messages) {
  std::set<int64_t> in_flight;
  std::set<double> sizes;
  for (const CollectiveSamples* samples : messages.send_recv) {
    in_flight.insert(samples->in_flight);
    for (const CostSamples& size : samples->sizes) sizes.insert(size.bytes);
  }
  return !messages.ping_pong.empty() && in_flight.size() >= 2 &&
         sizes.size() >= kMinSizes;
}

// What L, o, g and G are multiplied with.
Terms TermsOf(const CollectiveSamples& samples, double bytes) {
  const double further_bytes = std::max(0.0, bytes - 1);
  if (samples.collective == "ping_pong") return {1, 2, 0, further_bytes};
  const auto calls = static_cast<double>(samples.in_flight);
  return {1, 3, calls - 1, calls * further_bytes};
}

struct Rows {
  std::vector<Observation> observations;
  std::vector<std::vector<double>> redrawn;
};

void AddRows(const CollectiveSamples& samples, const CostFitConfig& config,
             std::mt19937_64& random, Rows* rows) {
  const auto calls = static_cast<double>(
      samples.collective == "ping_pong" ? 1 : samples.in_flight);
  for (const CostSamples& size : samples.sizes) {
    SampleMedian median =
        BootstrapMedian(size.seconds, config.resamples, random);
    if (median.median <= 0) continue;
    rows->observations.push_back({TermsOf(samples, size.bytes),
                                  calls * median.median,
                                  std::max(kFinest, median.relative_sigma)});
    for (double& seconds : median.redrawn) seconds *= calls;
    rows->redrawn.push_back(std::move(median.redrawn));
  }
}

LogGP Fit(const Messages& messages, const CostFitConfig& config) {
  std::mt19937_64 random(config.seed);
  Rows rows;
  for (const auto* samples : messages.ping_pong) {
    AddRows(*samples, config, random, &rows);
  }
  for (const auto* samples : messages.send_recv) {
    AddRows(*samples, config, random, &rows);
  }
  const std::vector<absl::Span<const double>> redrawn(rows.redrawn.begin(),
                                                      rows.redrawn.end());
  const FittedPiece fit =
      FitResampled(rows.observations, redrawn, {0}, kMaxTerms, config.seed)
          .pieces[0];
  return {fit.coefficients[0], fit.coefficients[1], fit.coefficients[2],
          fit.coefficients[3], fit.intervals[0],    fit.intervals[1],
          fit.intervals[2],    fit.intervals[3]};
}

}  // namespace

absl::StatusOr<LogGP> FitLogGP(absl::Span<const CollectiveSamples> samples,
                               const CostFitConfig& config) {
  std::map<int64_t, Messages> by_world_size;
  for (const CollectiveSamples& some : samples) {
    Messages& messages = by_world_size[some.world_size];
    if (some.collective == "ping_pong" && some.in_flight == 1) {
      messages.ping_pong.push_back(&some);
    } else if (some.collective == "send_recv") {
      messages.send_recv.push_back(&some);
    }
  }
  for (const auto& [world_size, messages] : by_world_size) {
    if (Suffices(messages)) return Fit(messages, config);
  }
  return absl::NotFoundError(
      "LogGP needs the rows ping_pong and send_recv at three sizes, send_recv "
      "with two different --in_flight: run comm_bench with "
      "--collectives=ping_pong,send_recv, and again with "
      "--collectives=send_recv --in_flight=8, into the same records");
}

}  // namespace rankwise
