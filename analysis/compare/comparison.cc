#include "analysis/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/cell.h"
#include "analysis/compare/configuration.h"
#include "analysis/compare/pairing.h"

namespace rankwise {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Samples of iterations are large; their medians hardly need more resamples.
constexpr size_t kLargeSample = 100;
constexpr int kResamplesOfLargeSamples = 1000;

Interval RatioInterval(const MetricSample& a, const MetricSample& b,
                       BootstrapConfig config) {
  if (std::min(a.values.size(), b.values.size()) < 2) {
    return {kUnknown, kUnknown};
  }
  if (std::max(a.values.size(), b.values.size()) > kLargeSample) {
    config.resamples = std::min(config.resamples, kResamplesOfLargeSamples);
  }
  return BootstrapRatioOfMedians(b.values, a.values, config);
}

// The same interval of a / b.
Interval Inverse(const Interval& interval) {
  return {1 / interval.high, 1 / interval.low};
}

Verdict Judge(const Change& change, double step_seconds,
              const ChangeConfig& config) {
  const double floor = kNegligibleStepShare * step_seconds;
  const bool negligible =
      change.metric->part_of_step && std::abs(change.b - change.a) < floor;
  if (negligible) return Verdict::kSame;
  const double reachable =
      SmallestMannWhitneyP(change.repetitions_a, change.repetitions_b);
  if (reachable >= config.alpha) return Verdict::kTooFew;
  const bool significant = change.p_value < config.alpha;
  if (change.a == 0) {  // no ratio tells how much more there is
    if (!significant) return Verdict::kUnclear;
    return change.metric->higher_is_better() ? Verdict::kBetter
                                             : Verdict::kWorse;
  }
  // How many times as bad B is.
  const bool inverse = change.metric->higher_is_better();
  const double worse = inverse ? 1 / change.ratio : change.ratio;
  const Interval interval =
      inverse ? Inverse(change.interval) : change.interval;
  const double limit = 1 + config.threshold;
  if (worse <= limit && worse >= 1 / limit) return Verdict::kSame;
  if (significant && worse > limit && interval.low > 1) return Verdict::kWorse;
  if (significant && worse < 1 / limit && interval.high < 1) {
    return Verdict::kBetter;
  }
  return Verdict::kUnclear;
}

Change Measure(const ConfigurationPair& pair, const MetricSample& a,
               const MetricSample& b, const ChangeConfig& config) {
  Change change;
  change.name = pair.a->name;
  change.unit = pair.a->unit;
  change.metric = &MetricNamed(a.metric);
  change.repetitions_a = a.values.size();
  change.repetitions_b = b.values.size();
  change.a = Median(a.values);
  change.b = Median(b.values);
  change.ratio = change.b / change.a;
  change.interval = change.a == 0 ? Interval{kUnknown, kUnknown}
                                  : RatioInterval(a, b, config.bootstrap);
  change.p_value = MannWhitneyTest(a.values, b.values).p_value;
  change.verdict = Judge(change, a.step_seconds, config);
  return change;
}

const MetricSample* Find(const Configuration& configuration,
                         absl::string_view metric) {
  for (const MetricSample& sample : configuration.samples) {
    if (sample.metric == metric && !sample.values.empty()) return &sample;
  }
  return nullptr;
}

bool IsAsked(const ChangeConfig& config, absl::string_view metric) {
  return config.metrics.empty() ||
         std::find(config.metrics.begin(), config.metrics.end(), metric) !=
             config.metrics.end();
}

// Metrics that are 0 throughout, such as communication on one rank, say
// nothing.
void AddChanges(const ConfigurationPair& pair, const ChangeConfig& config,
                std::vector<Change>& changes) {
  for (const Metric& metric : kMetrics) {
    const MetricSample* a = Find(*pair.a, metric.name);
    const MetricSample* b = Find(*pair.b, metric.name);
    if (a == nullptr || b == nullptr || !IsAsked(config, metric.name)) continue;
    if (Median(a->values) == 0 && Median(b->values) == 0) continue;
    changes.push_back(Measure(pair, *a, *b, config));
  }
}

void AddCodeRemark(const Configuration& configuration, const char* side,
                   std::vector<std::string>& remarks) {
  const std::string doubt = WhyNotOneCode(configuration.code_versions);
  if (doubt.empty()) return;
  remarks.push_back(absl::StrCat(configuration.name, ": its repetitions in ",
                                 side, " ", doubt));
}

std::vector<std::string> RemarksOf(const Pairing& pairing) {
  std::vector<std::string> remarks;
  for (const ConfigurationPair& pair : pairing.pairs) {
    AddCodeRemark(*pair.a, "A", remarks);
    AddCodeRemark(*pair.b, "B", remarks);
    if (pair.remark.empty()) continue;
    remarks.push_back(absl::StrCat(pair.a->name, ": ", pair.remark));
  }
  for (const Configuration* only : pairing.only_a) {
    remarks.push_back(absl::StrCat("only in A: ", only->name));
  }
  for (const Configuration* only : pairing.only_b) {
    remarks.push_back(absl::StrCat("only in B: ", only->name));
  }
  return remarks;
}

size_t RepetitionsNeeded(double alpha) {
  size_t needed = 1;
  while (SmallestMannWhitneyP(needed, needed) >= alpha) ++needed;
  return needed;
}

}  // namespace

bool Comparison::HasRegression() const {
  return std::any_of(changes.begin(), changes.end(), [](const Change& change) {
    return change.verdict == Verdict::kWorse;
  });
}

bool Comparison::IsComplete() const {
  return lost.empty() &&
         std::none_of(changes.begin(), changes.end(), [](const Change& c) {
           return c.verdict == Verdict::kTooFew;
         });
}

absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config) {
  const Pairing pairing = PairConfigurations(a.configurations, b.configurations,
                                             config.ignored_flags);
  if (pairing.pairs.empty()) {
    const std::string miss = NearestMiss(a.configurations, b.configurations);
    return absl::FailedPreconditionError(absl::StrCat(
        a.path, " and ", b.path, " have no configuration in common. ", miss,
        absl::StrContains(miss, " --")
            ? "; --ignore_flags=NAME compares across a flag"
            : ""));
  }
  Comparison comparison;
  comparison.repetitions_needed = RepetitionsNeeded(config.alpha);
  comparison.remarks = RemarksOf(pairing);
  for (const Configuration* only : pairing.only_a) {
    comparison.lost.push_back(only->name);
  }
  for (const ConfigurationPair& pair : pairing.pairs) {
    AddChanges(pair, config, comparison.changes);
  }
  if (!comparison.changes.empty()) return comparison;
  return absl::FailedPreconditionError(absl::StrCat(
      "what ", a.path, " and ", b.path, " have in common holds no --metrics=",
      absl::StrJoin(config.metrics, ",")));
}

}  // namespace rankwise
