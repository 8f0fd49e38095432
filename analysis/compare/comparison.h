// B against A, metric by metric: how much it changed, how sure that is, and
// whether it got worse. docs/compare.md says how to read it.

#ifndef ANALYSIS_COMPARE_COMPARISON_H_
#define ANALYSIS_COMPARE_COMPARISON_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/compare/metric.h"
#include "analysis/compare/record_set.h"
#include "analysis/statistics.h"

namespace rankwise {

enum class Verdict {
  kSame,     // within the threshold
  kWorse,    // beyond it, p below alpha, and the whole interval beyond 1
  kBetter,   // likewise
  kUnclear,  // beyond it, but it may be chance
  kTooFew,   // no p of so few repetitions can be below alpha
};

struct ChangeConfig {
  double threshold = 0.05;           // a change by less than this share is none
  double alpha = 0.05;               // what p must be below
  std::vector<std::string> metrics;  // names of kMetrics; empty: all
  std::set<std::string> ignored_flags;  // that may differ
  BootstrapConfig bootstrap;
};

// One metric of one configuration in both sets.
struct Change {
  std::string name;  // of the configuration
  std::string unit;  // of repetition: "run", "launch", "iteration"
  const Metric* metric = nullptr;  // of kMetrics
  size_t repetitions_a = 0, repetitions_b = 0;
  double a = 0, b = 0;  // medians over the repetitions
  double ratio = 1;     // b / a; infinite where a is 0
  // 95 %, by percentile bootstrap over the repetitions; NaN where one of the
  // two has fewer than 2, and where a is 0.
  Interval interval;
  double p_value = 1;  // Mann-Whitney
  Verdict verdict = Verdict::kSame;
};

struct Comparison {
  std::vector<Change> changes;       // A's order, then that of kMetrics
  std::vector<std::string> remarks;  // what one side lacks, code that changed
  std::vector<std::string> lost;     // names of what only A has
  // The smallest number of repetitions on each side that a verdict needs.
  size_t repetitions_needed = 0;

  bool HasRegression() const;
  // B has every configuration of A, with enough repetitions to be judged.
  bool IsComplete() const;
};

// FailedPrecondition, saying which configurations come nearest, where the two
// have none in common, and where they have no metric of `config` in common.
absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_COMPARISON_H_
