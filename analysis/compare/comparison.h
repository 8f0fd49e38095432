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
  // A part of the step: a change of less than kNegligibleStepShare of the step
  // is none, however large a share of the part it is.
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

enum class Verdict {
  kSame,     // within the threshold
  kWorse,    // beyond it, and corrected_p below alpha
  kBetter,   // beyond it in the good direction, and corrected_p below alpha
  kUnclear,  // beyond it, but it may be chance
  kTooFew,   // fewer than 2 repetitions on a side
};

struct ChangeConfig {
  RecordSetConfig records;           // how both sides are measured
  double threshold = 0.05;           // a change by less than this share is none
  double alpha = 0.05;               // what corrected_p must be below
  std::vector<std::string> metrics;  // names of kMetrics; empty: all
  std::set<std::string> ignored_flags;  // that may differ
};

// One metric of one configuration in both sets.
struct Change {
  std::string name;  // of the configuration
  std::string unit;  // of repetition: "run", "launch", "iteration"
  const Metric* metric = nullptr;  // of kMetrics
  size_t repetitions_a = 0, repetitions_b = 0;
  // Geometric means over the repetitions; means where one of these is 0.
  double a = 0, b = 0;
  double ratio = 1;  // b / a; infinite where a is 0
  // 95 % (see RatioOf). NaN where a value is 0, or a side has fewer than 2.
  Interval interval;
  // A difference between `a` and `b` below this counts as no change.
  double negligible = 0;
  // Welch's, of the logarithms; of the values where one is 0. NaN with fewer
  // than 2 repetitions.
  double p_value = 1;
  // Holm's, over the changes of one comparison that have a p.
  double corrected_p = 1;
  Verdict verdict = Verdict::kSame;
};

struct Comparison {
  std::vector<Change> changes;       // A's order, then that of kMetrics
  std::vector<std::string> remarks;  // what one side lacks, code that changed
  std::vector<std::string> lost;     // configurations and metrics of A alone

  bool HasRegression() const;
};

// FailedPrecondition where a run is in both, where the two have no
// configuration in common, saying which come nearest, and where they have no
// metric of `config` in common.
absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config);

// "slower", "same", ... of a metric's own kind.
std::string VerdictName(const Change& change);

// The two sides, the table, what to know about it, and the result in a line.
std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config);

// One line that says which configurations and metrics of A are missing in B,
// and how many figures have too few repetitions to be judged; "" where there
// are none.
std::string MissingText(const Comparison& comparison);

// For a job's summary or a comment: whether the gate is passed, the changes
// that are not the same, how many are, and the two sides. `missing` fails the
// gate: MissingText where all of A must be judged, else "".
std::string ComparisonMarkdown(const RecordSet& a, const RecordSet& b,
                               const Comparison& comparison,
                               const ChangeConfig& config,
                               const std::string& missing);

// The same where there is no comparison, because of `error`.
std::string FailureMarkdown(const std::string& error);

// A header and a line per change, fields quoted as RFC 4180 says. Values in
// seconds, bytes or per second; empty where not known.
std::string ComparisonCsv(const Comparison& comparison);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COMPARE_COMPARISON_H_
