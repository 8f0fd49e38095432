// What each configuration took over commits or days, and where that changed.
// docs/history.md says how to read it.
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
  bool by_day = false;                  // a point is a UTC day, else a commit
  double alpha = 0.05;                  // of all changes found together
  std::vector<std::string> metrics;     // names of kMetrics
  std::set<std::string> ignored_flags;  // that may differ
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
  // 95 %, Student's for the mean of the logarithms; NaN of one repetition.
  Interval interval;
};

// From `at` on, the values are of another level than those before it.
struct LevelChange {
  size_t at = 0;                 // of HistorySeries::points
  double before = 0, after = 0;  // geometric means over the points of a level
  Ratio ratio;                   // after / before; a value per point
  double p_value = 1;            // corrected for the places and the series
};

struct HistorySeries {
  std::string name;                // of the configuration, as it is last called
  const Metric* metric = nullptr;  // of kMetrics
  std::vector<SeriesPoint> points;
  std::vector<LevelChange> changes;
};

struct History {
  std::vector<HistoryPoint> points;  // in the order of their first runs
  std::vector<HistorySeries> series;
  size_t tested = 0;                 // series long enough to look for changes
  std::vector<std::string> remarks;  // what was left out, and why
};

// A commit's point holds all its runs, however long they lie apart. A point of
// one configuration belongs to the series of the earlier points that
// PairConfigurations pairs it with. A metric that is 0 somewhere has no
// series. InvalidArgument where two runs have one id, where a run id does not
// begin with the time, and where there is nothing to draw.
absl::StatusOr<History> MakeHistory(absl::Span<const RunTrace> runs,
                                    const HistoryConfig& config);

// Whether the change is one for the worse.
bool IsWorse(const HistorySeries& series, const LevelChange& change);

// The series, then the changes with the test that found them, then remarks.
std::string HistoryText(const History& history, const HistoryConfig& config);

// A header and a line per point of each series, fields quoted as RFC 4180 says,
// values in seconds, bytes or per second.
std::string HistoryCsv(const History& history);

// What page/history.js draws; values as in HistoryCsv.
nlohmann::json HistoryData(const History& history, const HistoryConfig& config);

// The page, whole or not at all; `plotly_js` is the path of plotly.min.js.
absl::Status WriteHistoryPage(const History& history,
                              const HistoryConfig& config,
                              const std::string& plotly_js,
                              const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_HISTORY_HISTORY_H_
