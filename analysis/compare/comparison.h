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
#include "analysis/stats/ratio.h"

namespace rankwise {

enum class Verdict {
  kSame,     // within the threshold
  kWorse,    // beyond it, and corrected_p below alpha
  kBetter,   // likewise
  kUnclear,  // beyond it, but it may be chance
  kTooFew,   // fewer than 2 repetitions on a side
};

struct ChangeConfig {
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
  // 95 %, of this ratio alone: see RatioOf. NaN where one of the two has fewer
  // than 2 repetitions, or one that is 0.
  Interval interval;
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
  std::vector<std::string> lost;     // names of what only A has

  bool HasRegression() const;
  // B has every configuration of A, with enough repetitions to be judged.
  bool IsComplete() const;
};

// FailedPrecondition where a run is in both, where the two have no
// configuration in common, saying which come nearest, and where they have no
// metric of `config` in common.
absl::StatusOr<Comparison> CompareRecordSets(const RecordSet& a,
                                             const RecordSet& b,
                                             const ChangeConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_COMPARISON_H_
