#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "analysis/compare/comparison.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/command_line.h"
#include "records/text.h"

namespace rankwise {
namespace {

std::string SideText(const char* name, const RecordSet& set) {
  std::string text =
      absl::StrCat(name, ": ", set.path, ", ", Counted(set.runs, "run"));
  if (set.jobs != set.runs)
    absl::StrAppend(&text, " (", Counted(set.jobs, "job"), ")");
  for (const std::string& by : set.made_by) absl::StrAppend(&text, "; ", by);
  return text + "\n";
}

std::string IntervalText(const Change& change) {
  if (!change.by_difference) {
    return IntervalText(change.interval,
                        [](double ratio) { return FixedText(ratio, 3); });
  }
  const std::string ends = IntervalText(
      change.interval,
      [&change](double value) { return FormatValue(*change.metric, value); });
  return ends == "-" ? ends : absl::StrCat("B-A ", ends);
}

std::string RatioText(const Change& change) {
  return std::isfinite(change.ratio) ? absl::StrFormat("%.3f", change.ratio)
                                     : "from 0";
}

// Returns "5 runs", or "5/4 runs" if the sides differ.
std::string RepetitionsText(const Change& change) {
  std::string count = absl::StrCat(change.repetitions_a);
  if (change.repetitions_b != change.repetitions_a) {
    absl::StrAppend(&count, "/", change.repetitions_b);
  }
  const bool one = std::max(change.repetitions_a, change.repetitions_b) == 1;
  const char* plural = change.unit == "launch" ? "es" : "s";
  return absl::StrCat(count, " ", change.unit, one ? "" : plural);
}

// Adds a row for each change for which `shows` returns true.
Table TableOf(const Comparison& comparison, bool (*shows)(const Change&)) {
  Table table;
  for (const Change& change : comparison.changes) {
    if (!shows(change)) continue;
    const Metric& metric = *change.metric;
    const std::string low = CsvNumber(change.interval.low);
    const std::string high = CsvNumber(change.interval.high);
    const std::vector<std::string> by_difference = {"", "", low, high};
    const std::vector<std::string> by_ratio = {low, high, "", ""};
    table.AddRow();
    table.Add("configuration", "configuration", Word(change.name), kLeft);
    table.Add("metric", "metric", Word(metric.name), kLeft);
    table.Add("verdict", "verdict", Word(VerdictName(change)), kLeft);
    table.Add("repetitions", "unit,repetitions_a,repetitions_b",
              {RepetitionsText(change),
               {change.unit, absl::StrCat(change.repetitions_a),
                absl::StrCat(change.repetitions_b)}},
              kLeft);
    table.Add("A", "a", Number(change.a, FormatValue(metric, change.a)));
    table.Add("B", "b", Number(change.b, FormatValue(metric, change.b)));
    table.Add("B/A", "ratio", Number(change.ratio, RatioText(change)));
    table.Add("95 % interval",
              "ratio_low,ratio_high,difference_low,difference_high",
              {IntervalText(change),
               change.by_difference ? by_difference : by_ratio});
    table.Add("p (Holm)", "p,corrected_p",
              {PValueText(change.corrected_p),
               {CsvNumber(change.p_value), CsvNumber(change.corrected_p)}});
  }
  return table;
}

std::string UnitNotes(const Comparison& comparison) {
  constexpr std::pair<absl::string_view, absl::string_view> kNotes[] = {
      {"run", "Repetitions of trainers are runs, never steps.\n"},
      {"launch",
       "Repetitions of collectives are launches: the median over the "
       "iterations of each.\n"},
      {"iteration",
       "Repetitions of collectives are iterations, which are not independent "
       "within a launch: their intervals and p are too small.\n"}};
  std::string notes;
  for (const auto& [unit, note] : kNotes) {
    const bool used = absl::c_any_of(
        comparison.changes,
        [&unit = unit](const Change& change) { return change.unit == unit; });
    if (used) absl::StrAppend(&notes, note);
  }
  return notes;
}

// Returns "2 of 3 figures".
std::string FiguresText(size_t some, const Comparison& comparison) {
  return absl::StrCat(some, " of ", comparison.changes.size(), " figures");
}

// Explains repetitions and columns, and counts the figures with too few
// repetitions.
std::string Notes(const Comparison& comparison) {
  std::string notes = UnitNotes(comparison);
  const auto tests = absl::c_count_if(
      comparison.changes,
      [](const Change& change) { return !std::isnan(change.p_value); });
  if (tests > 1) {
    absl::StrAppend(&notes, "p is corrected for ", tests,
                    " figures (Holm 1979).\n");
  }
  if (absl::c_any_of(comparison.changes, [](const Change& change) {
        return change.by_difference;
      })) {
    absl::StrAppendFormat(
        &notes,
        "B-A is judged instead of B/A if a repetition is 0, and for parts of "
        "the step for which the threshold is less than %g %% of A's step.\n",
        100 * kNegligibleStepShare);
  }
  const size_t few = comparison.changes.size() - tests;
  if (few > 0) {
    absl::StrAppend(&notes, FiguresText(few, comparison),
                    " cannot be judged with fewer than 2 repetitions on each "
                    "side (//:study -- --repetitions, comm_bench "
                    "--relaunch).\n");
  }
  return notes;
}

// Lists the first `limit` figures with `verdict`: "ddp on 2 ranks, batch 32,
// step_seconds (1.030 [0.900, 1.170]); ...".
std::string FiguresWith(Verdict verdict, const Comparison& comparison,
                        size_t limit) {
  std::vector<std::string> figures;
  for (const Change& change : comparison.changes) {
    if (change.verdict != verdict) continue;
    figures.push_back(absl::StrCat(
        change.name, ", ", change.metric->name, " (", RatioText(change), " ",
        std::isnan(change.p_value) ? "of " + RepetitionsText(change)
                                   : IntervalText(change),
        ")"));
  }
  if (figures.size() > limit) {
    const size_t more = figures.size() - limit;
    figures.resize(limit);
    figures.push_back(absl::StrCat("and ", more, " more"));
  }
  return absl::StrJoin(figures, "; ");
}

// Describes a comparison without worse or inconclusive figures.
std::string PassedLine(const Comparison& comparison, const std::string& by) {
  const size_t count = comparison.changes.size();
  const std::string all =
      count == 1 ? "the one figure" : absl::StrCat("all ", count, " figures");
  if (comparison.Count(Verdict::kEquivalent) == count) {
    return absl::StrCat("Equivalent within ", by, ": ", all, ".\n");
  }
  constexpr std::pair<Verdict, absl::string_view> kParts[] = {
      {Verdict::kBetter, " better"},
      {Verdict::kEquivalent, " equivalent"},
      {Verdict::kNotWorse, " equivalent or better"}};
  std::vector<std::string> parts;
  for (const auto& [verdict, words] : kParts) {
    const size_t some = comparison.Count(verdict);
    if (some > 0) parts.push_back(absl::StrCat(some, words));
  }
  return absl::StrCat("Not worse by more than ", by, ": ", all, " (",
                      absl::StrJoin(parts, ", "), ").\n");
}

std::string ResultLines(const Comparison& comparison, double threshold) {
  constexpr size_t kAll = -1, kFirst = 5;
  const std::string by = absl::StrFormat("%g %%", 100 * threshold);
  const std::string worse = FiguresWith(Verdict::kWorse, comparison, kAll);
  std::string text;
  if (!worse.empty()) {
    absl::StrAppend(&text, "Worse by more than ", by, ": ", worse, ".\n");
  }
  const size_t inconclusive = comparison.Count(Verdict::kInconclusive);
  if (inconclusive > 0) {
    absl::StrAppend(&text, "Cannot say for ",
                    FiguresText(inconclusive, comparison),
                    ", which may be worse by more than ", by, ": ",
                    FiguresWith(Verdict::kInconclusive, comparison, kFirst),
                    "; more repetitions may decide.\n");
  }
  return text.empty() ? PassedLine(comparison, by) : text;
}

// Lists Comparison::remarks, and the runs, rows and lines left out of a side.
std::string Remarks(const RecordSet& a, const RecordSet& b,
                    const Comparison& comparison) {
  std::string text;
  for (const std::string& remark : comparison.remarks) {
    absl::StrAppend(&text, "Note: ", remark, ".\n");
  }
  for (const auto& [side, set] : {std::pair("A", &a), std::pair("B", &b)}) {
    for (const std::string& reason : set->left_out) {
      absl::StrAppend(&text, "Left out of ", side, ": ", reason, ".\n");
    }
  }
  return text;
}

std::string Heading(absl::string_view verdict) {
  return absl::StrCat("### Performance: ", verdict, "\n\n");
}

// Escapes all characters that Markdown interprets.
std::string EscapeMarkdown(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::StrContains("\\`*_[]<>|&#~", c)) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Formats the lines of `text` as a list.
std::string MarkdownLines(absl::string_view text) {
  std::string list;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&list, "- ", EscapeMarkdown(line), "\n");
  }
  return list;
}

std::string MarkdownRow(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

// Formats the changes that are not equivalent; there must be one.
std::string MarkdownTable(const Comparison& comparison) {
  const Table table = TableOf(comparison, [](const Change& change) {
    return change.verdict != Verdict::kEquivalent;
  });
  std::vector<std::string> header, rule;
  for (const Table::Column& column : table.columns) {
    header.push_back(column.header);
    rule.push_back(column.flags & kLeft ? "---" : "---:");
  }
  std::string text = absl::StrCat(MarkdownRow(header), MarkdownRow(rule));
  for (const std::vector<Figure>& row : table.rows) {
    std::vector<std::string> cells;
    for (const Figure& figure : row)
      cells.push_back(EscapeMarkdown(figure.text));
    absl::StrAppend(&text, MarkdownRow(cells));
  }
  return text;
}

bool Any(const Change&) { return true; }

}  // namespace

std::string MissingText(const Comparison& comparison) {
  if (comparison.lost.empty()) return "";
  return absl::StrCat("Not all of A was compared (--require_all): B lacks ",
                      absl::StrJoin(comparison.lost, "; "), ".\n");
}

std::string VerdictName(const Change& change) {
  switch (change.verdict) {
    case Verdict::kWorse:
      return std::string(change.metric->worse());
    case Verdict::kBetter:
      return std::string(change.metric->better());
    case Verdict::kEquivalent:
      return "equivalent";
    case Verdict::kNotWorse:
      return absl::StrCat("not ", change.metric->worse());
    case Verdict::kInconclusive:
      break;
  }
  return "cannot say";
}

std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config) {
  return absl::StrCat(SideText("A", a), SideText("B", b), "\n",
                      TableText(TableOf(comparison, Any)), "\n",
                      Notes(comparison), Remarks(a, b, comparison),
                      ResultLines(comparison, config.threshold));
}

std::string ComparisonMarkdown(const RecordSet& a, const RecordSet& b,
                               const Comparison& comparison,
                               const ChangeConfig& config,
                               const std::string& missing) {
  const int code = GateExitCode(comparison, missing);
  std::string text = Heading(code == 0         ? "passed"
                             : code == kFailed ? "failed"
                                               : "cannot say");
  absl::StrAppend(
      &text, MarkdownLines(ResultLines(comparison, config.threshold) + missing),
      "\n");
  const size_t equivalent = comparison.Count(Verdict::kEquivalent);
  if (equivalent < comparison.changes.size()) {
    absl::StrAppend(&text, MarkdownTable(comparison), "\n");
  }
  absl::StrAppend(&text, "Equivalent: ", FiguresText(equivalent, comparison),
                  ".\n\n");
  return absl::StrCat(text, MarkdownLines(absl::StrCat(
                                SideText("A", a), SideText("B", b),
                                Notes(comparison), Remarks(a, b, comparison))));
}

std::string FailureMarkdown(const std::string& error) {
  return absl::StrCat(Heading("not compared"), MarkdownLines(error + "\n"));
}

std::string ComparisonCsv(const Comparison& comparison) {
  return TableCsv(TableOf(comparison, Any));
}

}  // namespace rankwise
