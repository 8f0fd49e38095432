// Compares B with A, metric by metric: the ratio, its 95 % interval, and a
// verdict. docs/compare.md explains them.
#ifndef RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_
#define RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
  // Whether it is a part of the step: changes of up to kNegligibleStepShare of
  // the step are within any threshold, even if they are large relative to the
  // part.
  bool part_of_step = false;

  bool higher_is_better() const { return unit == Unit::kPerSecond; }
  absl::string_view worse() const {
    return unit == Unit::kBytes ? "larger" : "slower";
  }
  absl::string_view better() const {
    return unit == Unit::kBytes ? "smaller" : "faster";
  }
};

inline constexpr double kNegligibleStepShare = 0.01;

inline constexpr Metric kMetrics[] = {
    {"step_seconds", Metric::Unit::kSeconds, false},
    {"examples_per_second", Metric::Unit::kPerSecond, false},
    {"comm_wait_seconds", Metric::Unit::kSeconds, true},
    {"data_wait_seconds", Metric::Unit::kSeconds, true},
    {"peak_bytes", Metric::Unit::kBytes, false},
    {"call_seconds", Metric::Unit::kSeconds, false},
};

// Splits "step_seconds,call_seconds" into names; "" selects all of kMetrics.
// InvalidArgument, with the known names, for an unknown one.
absl::StatusOr<std::vector<std::string>> ParseMetrics(absl::string_view text);

// InvalidArgument for an --alpha outside [1e-6, 1).
absl::Status CheckAlpha(double alpha);

// Returns "12.3 ms", "1.23 GB", "640 /s".
std::string FormatValue(const Metric& metric, double value);

struct ConfigurationPair {
  const Configuration* a = nullptr;
  const Configuration* b = nullptr;
  // Ignored flags that differ, and flags that only one side has (newer versions
  // add flags): "only B has --tied_head=true". "" if there are none.
  std::string remark;
};

struct Pairing {
  std::vector<ConfigurationPair> pairs;  // in the order of `a`
  std::vector<const Configuration*> only_a, only_b;
};

// Pairs configurations with equal identities and equal flags, except
// `ignored_flags` and flags that only one side has. Prefers pairs with equal
// CPU models, then pairs with equal flags. A configuration that still fits
// several others is not paired.
Pairing PairConfigurations(absl::Span<const Configuration> a,
                           absl::Span<const Configuration> b,
                           const std::set<std::string>& ignored_flags);

// Describes the pair with the fewest differences: "ddp on 2 ranks, batch 32 is
// in both, but for --lr: "0.1" and "0.2"", or, if there is no difference,
// states that one side has it several times. `a` and `b` must not be empty.
std::string NearestMiss(absl::Span<const Configuration> a,
                        absl::Span<const Configuration> b);

// Determined by the position of the whole 95 % interval. Only kWorse and
// kInconclusive fail a gate.
enum class Verdict {
  kWorse,         // beyond the threshold, and corrected_p < alpha
  kBetter,        // beyond it in the good direction, and corrected_p < alpha
  kEquivalent,    // within the threshold
  kNotWorse,      // equivalent or better, undecided which
  kInconclusive,  // possibly worse, or fewer than 2 repetitions on a side
};

struct ChangeConfig {
  RecordSetConfig records;  // how both sides are measured
  // Ratios from 1 / (1 + threshold) to 1 + threshold are equivalent.
  double threshold = 0.05;
  double alpha = 0.05;  // kWorse and kBetter need a corrected_p below this
  std::vector<std::string> metrics;     // names of kMetrics; empty selects all
  std::set<std::string> ignored_flags;  // trainer flags that may differ
};

// One metric of one configuration of both sets; a "figure" in texts.
struct Change {
  std::string name;  // of the configuration
  std::string unit;  // kind of repetition: "run", "launch", "iteration"
  const Metric* metric = nullptr;  // of kMetrics
  size_t repetitions_a = 0, repetitions_b = 0;
  // Whether b - a is judged, because a repetition is 0, or because the metric
  // is a part of the step and kNegligibleStepShare of A's step exceeds the
  // threshold.
  bool by_difference = false;
  // Geometric means over the repetitions; arithmetic ones if by_difference.
  double a = 0, b = 0;
  double ratio = 1;  // b / a; infinite if a is 0
  // 95 % interval of the ratio (RatioOf) or of b - a (DifferenceInterval). NaN
  // if a side has fewer than 2 repetitions.
  Interval interval;
  // Welch's test of the hypothesis of no change, on the logarithms, or on the
  // values if by_difference. NaN if a side has fewer than 2 repetitions.
  double p_value = 1;
  // Holm's correction of p_value over all changes that have one.
  double corrected_p = 1;
  Verdict verdict = Verdict::kInconclusive;
};

struct Comparison {
  std::vector<Change> changes;  // in A's order, then in that of kMetrics
  // Configurations, metrics and flags that one side lacks, ignored flags that
  // differ, repetitions of different code.
  std::vector<std::string> remarks;
  std::vector<std::string> lost;  // configurations and metrics that only A has

  size_t Count(Verdict verdict) const;
};

// Returns kFailed if a figure is worse; otherwise kInconclusive if a figure is,
// or if `missing` (MissingText, with --require_all) is not empty; otherwise 0.
int GateExitCode(const Comparison& comparison, const std::string& missing);

// FailedPrecondition if a run is in both, if the two have no configuration in
// common (the message includes NearestMiss), or if they have no metric of
// `config`.
absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config);

// Returns "slower", "equivalent", "not larger", ..., depending on the metric.
std::string VerdictName(const Change& change);

// Returns the two sides, the table, notes on it, and the result: lines that
// list the worse and the inconclusive figures, or one line if there are none.
std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config);

// Returns a line with the configurations and metrics of A that B lacks; "" if
// there are none.
std::string MissingText(const Comparison& comparison);

// Returns a CI job's summary or comment: the GateExitCode in words, the result,
// the changes that are not equivalent, the number of equivalent ones, and the
// two sides. `missing` as for GateExitCode.
std::string ComparisonMarkdown(const RecordSet& a, const RecordSet& b,
                               const Comparison& comparison,
                               const ChangeConfig& config,
                               const std::string& missing);

// Returns the report of a comparison that failed with `error`.
std::string FailureMarkdown(const std::string& error);

// Returns a header and a line per change, quoted as in RFC 4180. Values are in
// seconds, bytes or per second; empty if unknown. The interval is in ratio_* or
// difference_*, depending on which is judged.
std::string ComparisonCsv(const Comparison& comparison);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_
