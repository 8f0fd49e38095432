#include "analysis/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/runs/cell.h"
#include "records/command_line.h"

namespace rankwise {
namespace {

using Values = std::map<std::string, std::string>;

enum class Missing { kDiffers, kFits };

// Returns "NAME: VALUE and VALUE" for each entry that differs.
std::vector<std::string> Differences(const Values& a, const Values& b,
                                     const char* prefix, Missing missing) {
  std::vector<std::string> result;
  Values both = a;
  both.insert(b.begin(), b.end());
  for (const auto& [name, ignored] : both) {
    const auto in_a = a.find(name), in_b = b.find(name);
    const bool one_sided = in_a == a.end() || in_b == b.end();
    if (one_sided && missing == Missing::kFits) continue;
    if (!one_sided && in_a->second == in_b->second) continue;
    const auto text = [](bool has, const auto& entry) {
      return has ? absl::StrCat("\"", entry->second, "\"") : "none";
    };
    result.push_back(absl::StrCat(prefix, name, ": ",
                                  text(in_a != a.end(), in_a), " and ",
                                  text(in_b != b.end(), in_b)));
  }
  return result;
}

// Describes the flags that differ, and those that only one side has.
std::string Remark(const Configuration& a, const Configuration& b) {
  std::vector<std::string> remarks =
      Differences(a.flags, b.flags, "--", Missing::kFits);
  for (const auto& [side, has, other] :
       {std::tuple("A", &a, &b), std::tuple("B", &b, &a)}) {
    std::vector<std::string> own;
    for (const auto& [name, value] : has->flags) {
      if (other->flags.count(name) > 0) continue;
      own.push_back(absl::StrCat("--", name, "=", value));
    }
    if (own.empty()) continue;
    remarks.push_back(
        absl::StrCat("only ", side, " has ", absl::StrJoin(own, " ")));
  }
  return absl::StrJoin(remarks, ", ");
}

// The conditions for pairing two configurations.
struct Criterion {
  bool same_cpus = true;
  Missing missing_flags = Missing::kDiffers;
  const std::set<std::string>& ignored_flags;

  bool Fits(const Configuration& a, const Configuration& b) const {
    if (a.identity != b.identity || (same_cpus && a.cpus != b.cpus)) {
      return false;
    }
    Values flags_a = a.flags, flags_b = b.flags;
    for (const std::string& flag : ignored_flags) {
      flags_a.erase(flag);
      flags_b.erase(flag);
    }
    return Differences(flags_a, flags_b, "", missing_flags).empty();
  }
};

// Pairs unpaired configurations that fit each other and no other unpaired one.
void PairBy(const Criterion& criterion, Pairing& pairing) {
  using Fits =
      std::map<const Configuration*, std::vector<const Configuration*>>;
  Fits of_a, of_b;
  for (const Configuration* a : pairing.only_a) {
    for (const Configuration* b : pairing.only_b) {
      if (!criterion.Fits(*a, *b)) continue;
      of_a[a].push_back(b);
      of_b[b].push_back(a);
    }
  }
  for (const auto& [a, fits] : of_a) {
    const Configuration* b = fits[0];
    if (fits.size() != 1 || of_b[b].size() != 1) continue;
    pairing.pairs.push_back({a, b, Remark(*a, *b)});
    std::erase(pairing.only_a, a);
    std::erase(pairing.only_b, b);
  }
}

Interval Minus(const Interval& interval, double limit) {
  return {interval.low - limit, interval.high - limit};
}

// Returns the 95 % interval of x - y - threshold; negative within the
// threshold, which is `negligible` if that is above 0, otherwise relative to y.
Interval Excess(const std::vector<double>& x, std::vector<double> y,
                double threshold, double negligible) {
  if (negligible > 0) return Minus(DifferenceInterval(x, y), negligible);
  // A linear contrast, because the mean of y is uncertain too.
  for (double& value : y) value *= 1 + threshold;
  return DifferenceInterval(x, y);
}

// Derives the verdict from the intervals of B's excess in the bad and in the
// good direction.
Verdict VerdictOf(const Interval& worse, const Interval& better) {
  if (worse.low > 0) return Verdict::kWorse;
  if (better.low > 0) return Verdict::kBetter;
  if (!(worse.high <= 0)) return Verdict::kInconclusive;
  return better.high <= 0 ? Verdict::kEquivalent : Verdict::kNotWorse;
}

Verdict VerdictOfRatio(const Interval& ratio, bool higher_is_better,
                       double threshold) {
  const Interval inverse = {1 / ratio.high, 1 / ratio.low};
  const Interval worse = higher_is_better ? inverse : ratio;
  const Interval better = higher_is_better ? ratio : inverse;
  return VerdictOf(Minus(worse, 1 + threshold), Minus(better, 1 + threshold));
}

// Returns the change without corrected_p; its verdict depends only on the
// interval.
Change Measure(const ConfigurationPair& pair, const Metric& metric,
               const std::vector<double>& a, const std::vector<double>& b,
               double threshold) {
  const auto steps = pair.a->samples.find("step_seconds");
  double negligible = 0;
  if (metric.part_of_step && steps != pair.a->samples.end()) {
    negligible = kNegligibleStepShare * Median(steps->second);
  }
  if (negligible <= threshold * Mean(a)) negligible = 0;
  Change change;
  change.name = pair.a->name;
  change.unit = pair.a->unit;
  change.metric = &metric;
  change.repetitions_a = a.size();
  change.repetitions_b = b.size();
  change.by_difference = negligible > 0 || !AllPositive(a) || !AllPositive(b);
  const bool higher_is_better = metric.higher_is_better();
  if (!change.by_difference) {
    const Ratio ratio = RatioOf(b, a);
    change.a = GeometricMean(a);
    change.b = GeometricMean(b);
    change.ratio = ratio.value;
    change.interval = ratio.interval;
    change.p_value = ratio.p_value;
    change.verdict =
        VerdictOfRatio(ratio.interval, higher_is_better, threshold);
  } else {
    change.a = Mean(a);
    change.b = Mean(b);
    change.ratio = change.b / change.a;
    change.interval = DifferenceInterval(b, a);
    change.p_value = WelchP(b, a);
    const auto& bad = higher_is_better ? a : b;
    const auto& good = higher_is_better ? b : a;
    change.verdict = VerdictOf(Excess(bad, good, threshold, negligible),
                               Excess(good, bad, threshold, negligible));
  }
  return change;
}

// Skips metrics that are 0 throughout, such as communication on one rank.
void AddChanges(const ConfigurationPair& pair, const ChangeConfig& config,
                Comparison& comparison) {
  for (const Metric& metric : kMetrics) {
    const std::string name(metric.name);
    if (!config.metrics.empty() &&
        !absl::c_linear_search(config.metrics, name)) {
      continue;
    }
    const auto a = pair.a->samples.find(name), b = pair.b->samples.find(name);
    const bool in_a = a != pair.a->samples.end();
    const bool in_b = b != pair.b->samples.end();
    const bool measured =
        (in_a && Mean(a->second) != 0) || (in_b && Mean(b->second) != 0);
    if (!measured) continue;
    if (in_a && in_b) {
      comparison.changes.push_back(
          Measure(pair, metric, a->second, b->second, config.threshold));
      continue;
    }
    const std::string only = absl::StrCat(pair.a->name, ", ", name);
    comparison.remarks.push_back(
        absl::StrCat("only in ", in_a ? "A" : "B", ": ", only));
    if (in_a) comparison.lost.push_back(only);
  }
}

// Some of many intervals lie beyond the threshold by chance, so kWorse and
// kBetter also require a p corrected for their number. Passing a gate needs no
// correction, because all figures must pass (an intersection-union test, Berger
// 1982).
void CorrectForMany(double alpha, std::vector<Change>& changes) {
  std::vector<double> p_values;
  for (const Change& change : changes) p_values.push_back(change.p_value);
  const std::vector<double> corrected = HolmCorrected(p_values);
  for (size_t i = 0; i < changes.size(); ++i) {
    Change& change = changes[i];
    change.corrected_p = corrected[i];
    if (change.corrected_p < alpha) continue;
    if (change.verdict == Verdict::kWorse) {
      change.verdict = Verdict::kInconclusive;
    } else if (change.verdict == Verdict::kBetter) {
      change.verdict = Verdict::kNotWorse;
    }
  }
}

std::vector<std::string> RemarksOf(const Pairing& pairing) {
  std::vector<std::string> remarks;
  for (const ConfigurationPair& pair : pairing.pairs) {
    for (const auto& [side, configuration] :
         {std::pair("A", pair.a), std::pair("B", pair.b)}) {
      const std::string doubt = WhyNotOneCode(configuration->code_versions);
      if (doubt.empty()) continue;
      remarks.push_back(absl::StrCat(
          configuration->name, ": its repetitions in ", side, " ", doubt));
    }
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

absl::StatusOr<std::vector<std::string>> ParseMetrics(absl::string_view text) {
  std::vector<std::string> known;
  for (const Metric& metric : kMetrics) known.emplace_back(metric.name);
  if (text.empty()) return known;
  std::vector<std::string> names = absl::StrSplit(text, ',');
  for (const std::string& name : names) {
    if (absl::c_linear_search(known, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics=", text, ": there is no \"", name,
                     "\"; there are ", absl::StrJoin(known, ", ")));
  }
  return names;
}

absl::Status CheckAlpha(double alpha) {
  if (alpha >= 1e-6 && alpha < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--alpha=", alpha, ": expected a number from 1e-6, below 1"));
}

std::string FormatValue(const Metric& metric, double value) {
  using Prefixes = std::vector<std::pair<double, absl::string_view>>;
  Prefixes prefixes = {{1, "/s"}};
  if (metric.unit == Metric::Unit::kSeconds) {
    prefixes = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
  } else if (metric.unit == Metric::Unit::kBytes) {
    prefixes = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}};
  }
  // The largest prefix that the value reaches, else the smallest.
  const auto reached = std::find_if(prefixes.begin(), std::prev(prefixes.end()),
                                    [value](const auto& prefix) {
                                      return !(std::abs(value) < prefix.first);
                                    });
  return absl::StrFormat("%.4g %s", value / reached->first, reached->second);
}

Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags) {
  Pairing pairing;
  for (const Configuration& one : a) pairing.only_a.push_back(&one);
  for (const Configuration& one : b) pairing.only_b.push_back(&one);
  for (const bool same_cpus : {true, false}) {
    for (const Missing missing : {Missing::kDiffers, Missing::kFits}) {
      PairBy({same_cpus, missing, ignored_flags}, pairing);
    }
  }
  absl::c_sort(pairing.pairs, [](const auto& one, const auto& other) {
    return one.a < other.a;  // the order of the argument `a`
  });
  return pairing;
}

std::string NearestMiss(absl::Span<const Configuration> a,
                        absl::Span<const Configuration> b) {
  std::vector<std::string> fewest;
  const Configuration* nearest = nullptr;
  for (const Configuration& one : a) {
    for (const Configuration& other : b) {
      std::vector<std::string> differences =
          Differences(one.identity, other.identity, "", Missing::kDiffers);
      for (std::string& flag :
           Differences(one.flags, other.flags, "--", Missing::kFits)) {
        differences.push_back(std::move(flag));
      }
      if (nearest != nullptr && differences.size() >= fewest.size()) continue;
      nearest = &one;
      fewest = std::move(differences);
    }
  }
  if (fewest.empty()) {
    return absl::StrCat(nearest->name,
                        " is in both, but several times in one of them");
  }
  return absl::StrCat(nearest->name, " is in both, but for ",
                      absl::StrJoin(fewest, ", "));
}

size_t Comparison::Count(Verdict verdict) const {
  return absl::c_count_if(changes, [verdict](const Change& change) {
    return change.verdict == verdict;
  });
}

int GateExitCode(const Comparison& comparison, const std::string& missing) {
  if (comparison.Count(Verdict::kWorse) > 0) return kFailed;
  const bool inconclusive = comparison.Count(Verdict::kInconclusive) > 0;
  return inconclusive || !missing.empty() ? kInconclusive : 0;
}

absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config) {
  for (const std::string& id : a.run_ids) {
    if (b.run_ids.count(id) == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the run ", id, " is in both ", a.path, " and ", b.path,
        ", and a run is not compared with a copy of itself: remove it from one "
        "of the two"));
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
  for (const ConfigurationPair& pair : pairing.pairs) {
    AddChanges(pair, config, comparison);
  }
  CorrectForMany(config.alpha, comparison.changes);
  if (!comparison.changes.empty()) return comparison;
  return absl::FailedPreconditionError(
      absl::StrCat("the configurations that ", a.path, " and ", b.path,
                   " have in common have none of --metrics=",
                   absl::StrJoin(config.metrics, ",")));
}

}  // namespace rankwise
