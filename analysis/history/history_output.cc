#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/history/change_points.h"
#include "analysis/history/history.h"
#include "analysis/report/page.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {

extern const char kHistoryJs[];  // page/history.js

namespace {

using ::nlohmann::json;

std::string IntervalText(const Interval& interval) {
  if (std::isnan(interval.low)) return "-";
  return absl::StrFormat("[%.3f, %.3f]", interval.low, interval.high);
}

std::string ChangeWord(const HistorySeries& series, const LevelChange& change) {
  return std::string(IsWorse(series, change) ? series.metric->worse()
                                             : series.metric->better());
}

const HistoryPoint& PointAt(const History& history, const HistorySeries& series,
                            size_t at) {
  return history.points[series.points[at].point];
}

std::string SeriesTable(const History& history) {
  TextTable table({"configuration", "metric", "points", "first", "last",
                   "last/first", "changes"},
                  /*left_columns=*/2);
  for (const HistorySeries& series : history.series) {
    const double first = series.points.front().value;
    const double last = series.points.back().value;
    table.AddRow({series.name, std::string(series.metric->name),
                  absl::StrCat(series.points.size()),
                  FormatValue(*series.metric, first),
                  FormatValue(*series.metric, last),
                  absl::StrFormat("%.3f", last / first),
                  absl::StrCat(series.changes.size())});
  }
  return table.ToString();
}

std::string ChangesTable(const History& history) {
  TextTable table({"configuration", "metric", "change", "from", "commit",
                   "before", "after", "after/before", "interval", "p"},
                  /*left_columns=*/5);
  for (const HistorySeries& series : history.series) {
    for (const LevelChange& change : series.changes) {
      const HistoryPoint& point = PointAt(history, series, change.at);
      table.AddRow({series.name, std::string(series.metric->name),
                    ChangeWord(series, change), point.day, point.commit,
                    FormatValue(*series.metric, change.before),
                    FormatValue(*series.metric, change.after),
                    absl::StrFormat("%.3f", change.ratio.value),
                    IntervalText(change.ratio.interval),
                    PValueText(change.p_value)});
    }
  }
  return table.ToString();
}

size_t CountChanges(const History& history) {
  size_t changes = 0;
  for (const HistorySeries& series : history.series)
    changes += series.changes.size();
  return changes;
}

// The test, and the meaning of the columns.
std::string TestText(const History& history, const HistoryConfig& config) {
  if (history.tested == 0) {
    return absl::StrFormat(
        "No series has the %d points that finding a change needs; "
        "//analysis:compare compares two sets of runs.\n",
        2 * kLeastValuesOfLevel);
  }
  return absl::StrFormat(
      "Changes: Student's t test of the logarithms, one value per point, at "
      "all places of a series, without the most extreme point of each side; p "
      "is corrected for the places and the %d series (Bonferroni), and below "
      "%g. Points are assumed to vary independently around a level. Interval: "
      "95 %% of after/before, given the place.\n",
      history.tested, config.alpha);
}

json IntervalJson(const Interval& interval) {
  if (std::isnan(interval.low)) return nullptr;
  return {interval.low, interval.high};
}

json SeriesData(const HistorySeries& series) {
  json points = json::array(), changes = json::array();
  for (const SeriesPoint& point : series.points) {
    points.push_back({{"point", point.point},
                      {"repetitions", point.repetitions},
                      {"value", point.value},
                      {"interval", IntervalJson(point.interval)}});
  }
  for (const LevelChange& change : series.changes) {
    changes.push_back({{"at", change.at},
                       {"word", ChangeWord(series, change)},
                       {"worse", IsWorse(series, change)},
                       {"before", change.before},
                       {"after", change.after},
                       {"ratio", change.ratio.value},
                       {"interval", IntervalJson(change.ratio.interval)},
                       {"p", change.p_value}});
  }
  const char* const units[] = {"s", "/s", "B"};  // of Metric::Unit
  return {{"name", series.name},
          {"metric", std::string(series.metric->name)},
          {"unit", units[static_cast<int>(series.metric->unit)]},
          {"points", points},
          {"changes", changes}};
}

}  // namespace

std::string HistoryText(const History& history, const HistoryConfig& config) {
  size_t runs = 0;
  for (const HistoryPoint& point : history.points) runs += point.runs;
  std::string text = absl::StrCat(
      "History over ",
      Counted(static_cast<int64_t>(history.points.size()),
              config.by_day ? "day" : "commit"),
      ", ", history.points.front().day, " to ", history.points.back().day, " (",
      Counted(static_cast<int64_t>(runs), "run"), ")\n\n", SeriesTable(history),
      "\n", TestText(history, config));
  if (CountChanges(history) > 0) {
    absl::StrAppend(&text, "\n", ChangesTable(history));
  } else if (history.tested > 0) {
    absl::StrAppend(&text, "No change was found.\n");
  }
  for (const std::string& remark : history.remarks)
    absl::StrAppend(&text, "Note: ", remark, ".\n");
  return text;
}

std::string HistoryCsv(const History& history) {
  std::string csv =
      "configuration,metric,day,commit,repetitions,value,low,high,"
      "change_ratio,change_p\n";
  for (const HistorySeries& series : history.series) {
    size_t change = 0;
    for (size_t i = 0; i < series.points.size(); ++i) {
      const SeriesPoint& point = series.points[i];
      const HistoryPoint& of = history.points[point.point];
      const bool changes =
          change < series.changes.size() && series.changes[change].at == i;
      const double ratio =
          changes ? series.changes[change].ratio.value : std::nan("");
      const double p = changes ? series.changes[change].p_value : std::nan("");
      change += changes ? 1 : 0;
      const std::vector<std::string> fields = {CsvField(series.name),
                                               std::string(series.metric->name),
                                               of.day,
                                               CsvField(of.commit),
                                               absl::StrCat(point.repetitions),
                                               CsvNumber(point.value),
                                               CsvNumber(point.interval.low),
                                               CsvNumber(point.interval.high),
                                               CsvNumber(ratio),
                                               CsvNumber(p)};
      absl::StrAppend(&csv, absl::StrJoin(fields, ","), "\n");
    }
  }
  return csv;
}

json HistoryData(const History& history, const HistoryConfig& config) {
  json points = json::array(), series = json::array();
  for (const HistoryPoint& point : history.points) {
    points.push_back(
        {{"day", point.day}, {"commit", point.commit}, {"runs", point.runs}});
  }
  for (const HistorySeries& one : history.series)
    series.push_back(SeriesData(one));
  return {{"by_day", config.by_day},
          {"points", points},
          {"series", series},
          {"test", TestText(history, config)},
          {"remarks", history.remarks}};
}

absl::Status WriteHistoryPage(const History& history,
                              const HistoryConfig& config,
                              const std::string& plotly_js,
                              const std::string& path) {
  const std::string title =
      absl::StrCat("History, ", history.points.front().day, " to ",
                   history.points.back().day);
  return WritePage({title, plotly_js, kHistoryJs}, HistoryData(history, config),
                   path);
}

}  // namespace rankwise
