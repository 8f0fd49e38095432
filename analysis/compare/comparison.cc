#include "analysis/compare/comparison.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/runs/cell.h"

namespace rankwise {
namespace {

struct Prefix {
  double factor;
  absl::string_view name;
};

// The value with the largest of `prefixes` that it reaches, else the last.
std::string Scaled(double value, absl::Span<const Prefix> prefixes) {
  for (const Prefix& prefix : prefixes) {
    if (value < prefix.factor && &prefix != &prefixes.back()) continue;
    return absl::StrFormat("%.4g %s", value / prefix.factor, prefix.name);
  }
  return "";
}

using Values = std::map<std::string, std::string>;

enum class Missing { kDiffers, kFits };

// "NAME: VALUE and VALUE" for what is not equal in both.
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

Values Without(Values flags, const std::set<std::string>& ignored) {
  std::erase_if(flags, [&ignored](const auto& flag) {
    return ignored.count(flag.first) > 0;
  });
  return flags;
}

std::string OnlyIn(const char* side, const Values& has, const Values& other) {
  std::vector<std::string> flags;
  for (const auto& [name, value] : has) {
    if (other.count(name) == 0) {
      flags.push_back(absl::StrCat("--", name, "=", value));
    }
  }
  if (flags.empty()) return "";
  return absl::StrCat("only ", side, " has ", absl::StrJoin(flags, " "));
}

std::string Remark(const Configuration& a, const Configuration& b) {
  std::vector<std::string> remarks =
      Differences(a.flags, b.flags, "--", Missing::kFits);
  for (std::string remark :
       {OnlyIn("A", a.flags, b.flags), OnlyIn("B", b.flags, a.flags)}) {
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  return absl::StrJoin(remarks, ", ");
}

// Which configurations of two sets belong together, by their places.
class Pairer {
 public:
  Pairer(absl::Span<const Configuration> a, absl::Span<const Configuration> b,
         const std::set<std::string>& ignored)
      : a_(a), b_(b), ignored_(ignored) {}

  Pairing Pair() {
    for (const bool same_cpus : {true, false}) {
      PairWhere(same_cpus, Missing::kDiffers);
      PairWhere(same_cpus, Missing::kFits);
    }
    Pairing result;
    for (size_t i = 0; i < a_.size(); ++i) {
      const auto partner = partner_.find(i);
      if (partner == partner_.end()) {
        result.only_a.push_back(&a_[i]);
        continue;
      }
      const Configuration& b = b_[partner->second];
      result.pairs.push_back({&a_[i], &b, Remark(a_[i], b)});
    }
    for (size_t j = 0; j < b_.size(); ++j) {
      if (taken_.count(j) == 0) result.only_b.push_back(&b_[j]);
    }
    return result;
  }

 private:
  bool Fit(size_t i, size_t j, bool same_cpus, Missing missing) const {
    if (a_[i].identity != b_[j].identity) return false;
    if (same_cpus && a_[i].cpus != b_[j].cpus) return false;
    return Differences(Without(a_[i].flags, ignored_),
                       Without(b_[j].flags, ignored_), "", missing)
        .empty();
  }

  // Pairs those of what is left that fit nothing else of what is left.
  void PairWhere(bool same_cpus, Missing missing) {
    std::map<size_t, std::vector<size_t>> fits_a, fits_b;
    for (size_t i = 0; i < a_.size(); ++i) {
      for (size_t j = 0; j < b_.size(); ++j) {
        if (partner_.count(i) > 0 || taken_.count(j) > 0) continue;
        if (!Fit(i, j, same_cpus, missing)) continue;
        fits_a[i].push_back(j);
        fits_b[j].push_back(i);
      }
    }
    for (const auto& [i, fits] : fits_a) {
      if (fits.size() != 1 || fits_b[fits[0]].size() != 1) continue;
      partner_[i] = fits[0];
      taken_.insert(fits[0]);
    }
  }

  const absl::Span<const Configuration> a_, b_;
  const std::set<std::string>& ignored_;
  std::map<size_t, size_t> partner_;  // of a_ in b_
  std::set<size_t> taken_;            // of b_
};

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Judges a change that has its corrected p.
Verdict Judge(const Change& change, const ChangeConfig& config) {
  if (std::abs(change.b - change.a) < change.negligible) return Verdict::kSame;
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

bool AllPositive(const std::vector<double>& values) {
  return absl::c_all_of(values, [](double x) { return x > 0; });
}

// Without its corrected p and its verdict.
Change Measure(const ConfigurationPair& pair, const Metric& metric,
               const std::vector<double>& a, const std::vector<double>& b) {
  Change change;
  change.name = pair.a->name;
  change.unit = pair.a->unit;
  change.metric = &metric;
  change.repetitions_a = a.size();
  change.repetitions_b = b.size();
  if (AllPositive(a) && AllPositive(b)) {
    const Ratio ratio = RatioOf(b, a);
    change.a = GeometricMean(a);
    change.b = GeometricMean(b);
    change.ratio = ratio.value;
    change.interval = ratio.interval;
    change.p_value = ratio.p_value;
  } else {
    change.a = Mean(a);
    change.b = Mean(b);
    change.ratio = change.b / change.a;
    change.interval = {kUnknown, kUnknown};
    change.p_value = WelchP(b, a);
  }
  const auto steps = pair.a->samples.find("step_seconds");
  if (metric.part_of_step && steps != pair.a->samples.end()) {
    change.negligible = kNegligibleStepShare * Median(steps->second);
  }
  return change;
}

// Metrics that are 0 throughout, such as communication on one rank, say
// nothing.
void AddChanges(const ConfigurationPair& pair, const ChangeConfig& config,
                std::vector<Change>& changes) {
  for (const Metric& metric : kMetrics) {
    const std::string name(metric.name);
    const auto a = pair.a->samples.find(name), b = pair.b->samples.find(name);
    if (a == pair.a->samples.end() || b == pair.b->samples.end()) continue;
    const bool wanted =
        config.metrics.empty() || absl::c_linear_search(config.metrics, name);
    if (!wanted || (Mean(a->second) == 0 && Mean(b->second) == 0)) continue;
    changes.push_back(Measure(pair, metric, a->second, b->second));
  }
}

// Every figure is a test, and of many tests some find a change where there is
// none: the verdicts are by p corrected for their number.
void JudgeAll(const ChangeConfig& config, std::vector<Change>& changes) {
  std::vector<double> p_values;
  for (const Change& change : changes) p_values.push_back(change.p_value);
  const std::vector<double> corrected = HolmCorrected(p_values);
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i].corrected_p = corrected[i];
    changes[i].verdict = Judge(changes[i], config);
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

std::string FormatValue(const Metric& metric, double value) {
  switch (metric.unit) {
    case Metric::Unit::kSeconds:
      return Scaled(value, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}});
    case Metric::Unit::kBytes:
      return Scaled(value, {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}});
    case Metric::Unit::kPerSecond:
      break;
  }
  return absl::StrFormat("%.4g /s", value);
}

Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags) {
  return Pairer(a, b, ignored_flags).Pair();
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

bool Comparison::HasRegression() const {
  return absl::c_any_of(changes, [](const Change& change) {
    return change.verdict == Verdict::kWorse;
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
  for (const ConfigurationPair& pair : pairing.pairs) {
    AddChanges(pair, config, comparison.changes);
  }
  JudgeAll(config, comparison.changes);
  if (!comparison.changes.empty()) return comparison;
  return absl::FailedPreconditionError(absl::StrCat(
      "what ", a.path, " and ", b.path, " have in common holds no --metrics=",
      absl::StrJoin(config.metrics, ",")));
}

}  // namespace rankwise
