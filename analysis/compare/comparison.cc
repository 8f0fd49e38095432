#include "analysis/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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
// Judges a change that has its corrected p.
Verdict Judge(const Change& change, double step_seconds,
              const ChangeConfig& config) {
  const double floor = kNegligibleStepShare * step_seconds;
  const bool negligible =
      change.metric->part_of_step && std::abs(change.b - change.a) < floor;
  if (negligible) return Verdict::kSame;
  if (std::isnan(change.corrected_p)) return Verdict::kTooFew;
  const bool significant = change.corrected_p < config.alpha;
  // How many times as bad B is; infinite or 0 where one side is 0.
  const double worse =
      change.metric->higher_is_better() ? 1 / change.ratio : change.ratio;
  const double limit = 1 + config.threshold;
  if (worse <= limit && worse >= 1 / limit) return Verdict::kSame;
  if (!significant) return Verdict::kUnclear;
  return worse > limit ? Verdict::kWorse : Verdict::kBetter;
}

bool AllPositive(const MetricSample& sample) {
  return std::all_of(sample.values.begin(), sample.values.end(),
                     [](double x) { return x > 0; });
}

// Without its corrected p and its verdict.
Change Measure(const ConfigurationPair& pair, const MetricSample& a,
               const MetricSample& b) {
  Change change;
  change.name = pair.a->name;
  change.unit = pair.a->unit;
  change.metric = &MetricNamed(a.metric);
  change.repetitions_a = a.values.size();
  change.repetitions_b = b.values.size();
  if (AllPositive(a) && AllPositive(b)) {
    const Ratio ratio = RatioOf(b.values, a.values);
    change.a = GeometricMean(a.values);
    change.b = GeometricMean(b.values);
    change.ratio = ratio.value;
    change.interval = ratio.interval;
    change.p_value = ratio.p_value;
  } else {
    change.a = Mean(a.values);
    change.b = Mean(b.values);
    change.ratio = change.b / change.a;
    change.interval = {kUnknown, kUnknown};
    change.p_value = WelchP(b.values, a.values);
  }
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

// A change, and what its verdict needs besides.
struct Measured {
  Change change;
  double step_seconds = 0;
};

// Metrics that are 0 throughout, such as communication on one rank, say
// nothing.
void AddChanges(const ConfigurationPair& pair, const ChangeConfig& config,
                std::vector<Measured>& changes) {
  for (const Metric& metric : kMetrics) {
    const MetricSample* a = Find(*pair.a, metric.name);
    const MetricSample* b = Find(*pair.b, metric.name);
    if (a == nullptr || b == nullptr || !IsAsked(config, metric.name)) continue;
    if (Mean(a->values) == 0 && Mean(b->values) == 0) continue;
    changes.push_back({Measure(pair, *a, *b), a->step_seconds});
  }
}

// Every figure is a test, and of many tests some find a change where there is
// none: the verdicts are by p corrected for their number.
std::vector<Change> Judged(std::vector<Measured> measured,
                           const ChangeConfig& config) {
  std::vector<double> p_values;
  for (const Measured& one : measured) p_values.push_back(one.change.p_value);
  const std::vector<double> corrected = HolmCorrected(p_values);
  std::vector<Change> changes;
  for (size_t i = 0; i < measured.size(); ++i) {
    Change& change = measured[i].change;
    change.corrected_p = corrected[i];
    change.verdict = Judge(change, measured[i].step_seconds, config);
    changes.push_back(std::move(change));
  }
  return changes;
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
  for (const std::string& id : a.run_ids) {
    if (b.run_ids.count(id) == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the run ", id, " is in both ", a.path, " and ", b.path,
        ", and a run is not compared with a copy of itself: leave it out of "
        "one of the two"));
  }
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
  comparison.remarks = RemarksOf(pairing);
  for (const Configuration* only : pairing.only_a) {
    comparison.lost.push_back(only->name);
  }
  std::vector<Measured> measured;
  for (const ConfigurationPair& pair : pairing.pairs) {
    AddChanges(pair, config, measured);
  }
  comparison.changes = Judged(std::move(measured), config);
  if (!comparison.changes.empty()) return comparison;
  return absl::FailedPreconditionError(absl::StrCat(
      "what ", a.path, " and ", b.path, " have in common holds no --metrics=",
      absl::StrJoin(config.metrics, ",")));
}

}  // namespace rankwise
