// B against A, metric by metric: how much it changed, how sure that is, and
// whether it got worse. docs/compare.md says how to read it.
#ifndef RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_
#define RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/compare/record_set.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

struct Metric {
  enum class Unit { kSeconds, kPerSecond, kBytes };

  absl::string_view name;
  Unit unit = Unit::kSeconds;
  // A part of the step: a change of up to kNegligibleStepShare of the step is
  // within any threshold, however large a share of the part it is.
  bool part_of_step = false;

  bool higher_is_better() const { return unit == Unit::kPerSecond; }
};

inline constexpr double kNegligibleStepShare = 0.01;

inline constexpr Metric kMetrics[] = {
    {"step_seconds", Metric::Unit::kSeconds, false},
    {"examples_per_second", Metric::Unit::kPerSecond, false},
    {"exposed_comm_seconds", Metric::Unit::kSeconds, true},
    {"data_wait_seconds", Metric::Unit::kSeconds, true},
    {"peak_bytes", Metric::Unit::kBytes, false},
    {"call_seconds", Metric::Unit::kSeconds, false},
};

// "step_seconds,call_seconds" as their names; "" stands for all.
// InvalidArgument for one that does not exist, naming those that do.
absl::StatusOr<std::vector<std::string>> ParseMetrics(absl::string_view text);

// "12.3 ms", "1.23 GB", "640 /s".
std::string FormatValue(const Metric& metric, double value);

struct ConfigurationPair {
  const Configuration* a = nullptr;
  const Configuration* b = nullptr;
  // The ignored flags that differ, and those that only one of them has, as a
  // newer version adds flags; "" for none: "only B has --tied_head=true".
  std::string remark;
};

struct Pairing {
  std::vector<ConfigurationPair> pairs;  // in the order of `a`
  std::vector<const Configuration*> only_a, only_b;
};

// Pairs what has equal identities, and equal flags but for `ignored_flags` and
// those that one of the two does not have. Equal kinds of CPU come first, then
// equal flags; what fits several others beyond that is not paired.
Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags);

// Of the pairs that could be made, the one that differs in the fewest things,
// in words: "ddp on 2 ranks, batch 32 is in both, but for --lr: 0.1 and 0.2".
// Neither may be empty. Where nothing differs, that it is there several times.
std::string NearestMiss(absl::Span<const Configuration> a,
                        absl::Span<const Configuration> b);

// By where the whole 95 % interval lies. Only kWorse and kCannotSay fail a
// gate.
enum class Verdict {
  kWorse,       // beyond the threshold, and corrected_p below alpha
  kBetter,      // beyond it in the good direction, and corrected_p below alpha
  kEquivalent,  // within the threshold
  kNotWorse,    // not beyond it: equivalent or better, undecided which
  kCannotSay,   // elsewhere, or a side has fewer than 2 repetitions
};

struct ChangeConfig {
  RecordSetConfig records;  // how both sides are measured
  // Equivalent is a ratio from 1 / (1 + threshold) to 1 + threshold.
  double threshold = 0.05;
  double alpha = 0.05;                  // what corrected_p must be below
  std::vector<std::string> metrics;     // names of kMetrics; empty: all
  std::set<std::string> ignored_flags;  // that may differ
};

// One metric of one configuration in both sets.
struct Change {
  std::string name;  // of the configuration
  std::string unit;  // of repetition: "run", "launch", "iteration"
  const Metric* metric = nullptr;  // of kMetrics
  size_t repetitions_a = 0, repetitions_b = 0;
  // Judged by b - a: a repetition has 0, or kNegligibleStepShare of A's step is
  // more than the threshold's share of a part of the step.
  bool by_difference = false;
  // Geometric means over the repetitions; arithmetic ones if by_difference.
  double a = 0, b = 0;
  double ratio = 1;  // b / a; infinite where a is 0
  // 95 %, of the ratio (see RatioOf) or of b - a (see DifferenceInterval). NaN
  // where a side has fewer than 2 repetitions.
  Interval interval;
  // Welch's, of the logarithms, of the values if by_difference, that nothing
  // changed. NaN with fewer than 2 repetitions.
  double p_value = 1;
  // Holm's, over the changes of one comparison that have a p.
  double corrected_p = 1;
  Verdict verdict = Verdict::kCannotSay;
};

struct Comparison {
  std::vector<Change> changes;       // A's order, then that of kMetrics
  std::vector<std::string> remarks;  // what one side lacks, code that changed
  std::vector<std::string> lost;     // configurations and metrics of A alone

  size_t Count(Verdict verdict) const;
};

// kFailed if a figure is worse; else kCannotSay if that is open for a figure,
// or if `missing` (MissingText, with --require_all) is not empty; else 0.
int GateExitCode(const Comparison& comparison, const std::string& missing);

// FailedPrecondition where a run is in both, where the two have no
// configuration in common, saying which come nearest, and where they have no
// metric of `config` in common.
absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config);

// "slower", "equivalent", "not larger", ... in the metric's own words.
std::string VerdictName(const Change& change);

// The two sides, the table, notes on it, and the result: a line that says which
// figures are worse, one that says for which that is open, or one that says
// that none is.
std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config);

// One line that names the configurations and metrics of A that B lacks; "" if
// it lacks none.
std::string MissingText(const Comparison& comparison);

// For a job's summary or a comment: the GateExitCode in words, the result, the
// changes that are not equivalent, the number of those that are, and the two
// sides. `missing` as for GateExitCode.
std::string ComparisonMarkdown(const RecordSet& a, const RecordSet& b,
                               const Comparison& comparison,
                               const ChangeConfig& config,
                               const std::string& missing);

// The same where there is no comparison, because of `error`.
std::string FailureMarkdown(const std::string& error);

// A header and a line per change, fields quoted as RFC 4180 says. Values in
// seconds, bytes or per second; empty where not known. The interval is under
// ratio_* or difference_*, whichever is judged.
std::string ComparisonCsv(const Comparison& comparison);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_
