// Metrics of each configuration over commits or days, and where they changed.
// docs/history.md explains the method.
#ifndef RANKWISE_ANALYSIS_HISTORY_HISTORY_H_
#define RANKWISE_ANALYSIS_HISTORY_HISTORY_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/compare/comparison.h"
#include "analysis/compare/record_set.h"
#include "analysis/runs/run_trace.h"
#include "analysis/stats/statistics.h"
#include "nlohmann/json.hpp"

namespace rankwise {

struct HistoryConfig {
  RecordSetConfig records;              // how runs are measured
  bool by_day = false;                  // a point is a UTC day, not a commit
  double alpha = 0.05;                  // probability of any false change
  std::vector<std::string> metrics;     // names of kMetrics
  std::set<std::string> ignored_flags;  // trainer flags that may differ
};

// The runs of one commit or day.
struct HistoryPoint {
  std::string day;     // of the first run, UTC: "2026-01-31"
  std::string commit;  // CommitText of the first run
  size_t runs = 0;
};

// One configuration's metric at one point.
struct SeriesPoint {
  size_t point = 0;  // of History::points
  size_t repetitions = 0;
  double value = 0;  // geometric mean over the repetitions
  // Student's 95 % interval, of the logarithms; NaN for one repetition.
  Interval interval;
};

// The level of a series changes at the point `at`.
struct LevelChange {
  size_t at = 0;                 // of HistorySeries::points
  double before = 0, after = 0;  // geometric means over the points of a level
  Ratio ratio;                   // after / before, one value per point
  double p_value = 1;  // corrected for the numbers of places and series
};

struct HistorySeries {
  std::string name;                // of the configuration, at its last point
  const Metric* metric = nullptr;  // of kMetrics
  std::vector<SeriesPoint> points;
  std::vector<LevelChange> changes;
};

struct History {
  std::vector<HistoryPoint> points;  // in the order of their first runs
  std::vector<HistorySeries> series;
  size_t tested = 0;  // number of series long enough to search for changes
  std::vector<std::string> remarks;  // items left out, with reasons
};

// A commit's point contains all runs of that CodeVersion, regardless of their
// time. A configuration of a point continues the series with which
// PairConfigurations pairs it. A metric that is 0 in a run has no series.
// InvalidArgument if two runs have the same id, if a run id does not begin with
// the date, or if there is no series.
absl::StatusOr<History> MakeHistory(std::vector<RunTrace> runs,
                                    const HistoryConfig& config);

// Whether the change made the metric worse.
bool IsWorse(const HistorySeries& series, const LevelChange& change);

// Returns tables of the series and of the changes, the test, and the remarks.
std::string HistoryText(const History& history, const HistoryConfig& config);

// Returns a header and a line per point of each series, quoted as in RFC 4180.
// Values are in seconds, bytes or per second.
std::string HistoryCsv(const History& history);

// Returns the input of page/history.js, in the units of HistoryCsv.
nlohmann::json HistoryData(const History& history, const HistoryConfig& config);

// Writes the page atomically. `plotly_js` is the path of plotly.min.js.
absl::Status WriteHistoryPage(const History& history,
                              const HistoryConfig& config,
                              const std::string& plotly_js,
                              const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_HISTORY_HISTORY_H_
