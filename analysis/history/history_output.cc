#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/history/change_points.h"
#include "analysis/history/history.h"
#include "analysis/report/page.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {

extern const char kHistoryJs[];  // page/history.js

namespace {

using ::nlohmann::json;

std::string Thousandths(double value) { return FixedText(value, 3); }

std::string ChangeWord(const HistorySeries& series, const LevelChange& change) {
  return std::string(IsWorse(series, change) ? series.metric->worse()
                                             : series.metric->better());
}

const HistoryPoint& PointAt(const History& history, const HistorySeries& series,
                            size_t at) {
  return history.points[series.points[at].point];
}

void AddSeriesRow(const HistorySeries& series, Table& table) {
  table.AddRow();
  table.Add("configuration", "configuration", Word(series.name), kLeft);
  table.Add("metric", "metric", Word(series.metric->name), kLeft);
}

Figure Value(const HistorySeries& series, double value) {
  return Number(value, FormatValue(*series.metric, value));
}

Table SeriesTable(const History& history) {
  Table table = {"series-table", "Series"};
  for (const HistorySeries& series : history.series) {
    const double first = series.points.front().value;
    const double last = series.points.back().value;
    AddSeriesRow(series, table);
    table.Add("points", "points", Whole(std::ssize(series.points)));
    table.Add("first", "first", Value(series, first));
    table.Add("last", "last", Value(series, last));
    table.Add("last/first", "ratio", Fixed(last / first, 3));
    table.Add("changes", "changes", Whole(std::ssize(series.changes)));
  }
  return table;
}

Table ChangesTable(const History& history) {
  Table table = {"changes-table", "Level changes"};
  for (const HistorySeries& series : history.series) {
    for (const LevelChange& change : series.changes) {
      const HistoryPoint& point = PointAt(history, series, change.at);
      AddSeriesRow(series, table);
      table.Add("change", "change", Word(ChangeWord(series, change)), kLeft);
      table.Add("from", "day", Word(point.day), kLeft);
      table.Add("commit", "commit", Word(point.commit), kLeft);
      table.Add("before", "before", Value(series, change.before));
      table.Add("after", "after", Value(series, change.after));
      table.Add("after/before", "ratio", Fixed(change.ratio.value, 3));
      table.Add("interval", "ratio_low,ratio_high",
                Ends(change.ratio.interval, Thousandths));
      table.Add("p", "p", Number(change.p_value, PValueText(change.p_value)));
    }
  }
  return table;
}

Table PointsTable(const History& history) {
  Table table = {"history-table", "Points of all series"};
  for (const HistorySeries& series : history.series) {
    for (size_t i = 0; i < series.points.size(); ++i) {
      const SeriesPoint& point = series.points[i];
      const HistoryPoint& of = PointAt(history, series, i);
      const auto change = absl::c_find_if(
          series.changes, [i](const LevelChange& one) { return one.at == i; });
      const bool changes = change != series.changes.end();
      AddSeriesRow(series, table);
      table.Add("day", "day", Word(of.day), kLeft);
      table.Add("commit", "commit", Word(of.commit), kLeft);
      table.Add("repetitions", "repetitions",
                Whole(static_cast<int64_t>(point.repetitions)));
      table.Add("value", "value", Value(series, point.value));
      table.Add("95 %", "low,high", Ends(point.interval, [&](double value) {
                  return FormatValue(*series.metric, value);
                }));
      table.Add("change", "change_ratio",
                Fixed(changes ? change->ratio.value : std::nan(""), 3),
                kInFile);
      table.Add("p", "change_p",
                Fixed(changes ? change->p_value : std::nan(""), 3), kInFile);
    }
  }
  return table;
}

size_t CountChanges(const History& history) {
  size_t changes = 0;
  for (const HistorySeries& series : history.series)
    changes += series.changes.size();
  return changes;
}

// Describes the test and the columns.
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

json SeriesData(const HistorySeries& series) {
  json points = json::array(), changes = json::array();
  for (const SeriesPoint& point : series.points) {
    points.push_back({{"point", point.point},
                      {"repetitions", point.repetitions},
                      {"value", point.value},
                      {"interval", IntervalData(point.interval)}});
  }
  for (const LevelChange& change : series.changes) {
    changes.push_back({{"at", change.at},
                       {"before", change.before},
                       {"after", change.after}});
  }
  const char* const units[] = {"s", "/s", "B"};  // in the order of Metric::Unit
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
      Counted(static_cast<int64_t>(runs), "run"), ")\n\n",
      TableText(SeriesTable(history)), "\n", TestText(history, config));
  if (CountChanges(history) > 0) {
    absl::StrAppend(&text, "\n", TableText(ChangesTable(history)));
  } else if (history.tested > 0) {
    absl::StrAppend(&text, "No change was found.\n");
  }
  for (const std::string& remark : history.remarks)
    absl::StrAppend(&text, "Note: ", remark, ".\n");
  return text;
}

std::string HistoryCsv(const History& history) {
  return TableCsv(PointsTable(history));
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
          {"changes", TableData(ChangesTable(history))},
          {"values", TableData(PointsTable(history))},
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
