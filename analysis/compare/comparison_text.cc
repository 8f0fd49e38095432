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
#include "analysis/text/text_table.h"
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

std::string IntervalText(const Interval& interval) {
  if (std::isnan(interval.low) || std::isnan(interval.high)) return "-";
  return absl::StrFormat("[%.3f, %.3f]", interval.low, interval.high);
}

std::string RatioText(const Change& change) {
  return std::isfinite(change.ratio) ? absl::StrFormat("%.3f", change.ratio)
                                     : "from 0";
}

// "5 runs", "5/4 runs" where the sides differ.
std::string RepetitionsText(const Change& change) {
  std::string count = absl::StrCat(change.repetitions_a);
  if (change.repetitions_b != change.repetitions_a) {
    absl::StrAppend(&count, "/", change.repetitions_b);
  }
  const bool one = std::max(change.repetitions_a, change.repetitions_b) == 1;
  const char* plural = change.unit == "launch" ? "es" : "s";
  return absl::StrCat(count, " ", change.unit, one ? "" : plural);
}

std::string PText(double p) {
  if (std::isnan(p)) return "-";
  return p < 0.001 ? "<0.001" : absl::StrFormat("%.3f", p);
}

std::vector<std::string> Columns() {
  return {"configuration", "metric",        "verdict", "repetitions", "A", "B",
          "B/A",           "95 % interval", "p (Holm)"};
}

constexpr size_t kLeftColumns = 4;  // of Columns(), aligned left

std::vector<std::string> RowOf(const Change& change) {
  return {change.name,
          std::string(change.metric->name),
          VerdictName(change),
          RepetitionsText(change),
          FormatValue(*change.metric, change.a),
          FormatValue(*change.metric, change.b),
          RatioText(change),
          IntervalText(change.interval),
          PText(change.corrected_p)};
}

size_t CountOf(const Comparison& comparison, Verdict verdict) {
  return absl::c_count_if(comparison.changes, [verdict](const Change& change) {
    return change.verdict == verdict;
  });
}

std::string UnitNotes(const Comparison& comparison) {
  constexpr std::pair<absl::string_view, absl::string_view> kNotes[] = {
      {"run", "Repetitions of trainers are runs, never steps.\n"},
      {"launch",
       "Repetitions of collectives are launches, each by the median of its "
       "iterations.\n"},
      {"iteration",
       "Repetitions of collectives are iterations, which depend on each other "
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

// What counts as a repetition, what the column p is, and how many figures could
// not be judged.
std::string Notes(const Comparison& comparison, double threshold) {
  std::string notes = UnitNotes(comparison);
  const auto tests = absl::c_count_if(
      comparison.changes,
      [](const Change& change) { return !std::isnan(change.p_value); });
  if (tests > 1) {
    absl::StrAppend(&notes, "p is corrected for ", tests,
                    " figures (Holm 1979).\n");
  }
  const size_t figures = comparison.changes.size();
  if (const size_t few = CountOf(comparison, Verdict::kTooFew); few > 0) {
    absl::StrAppend(&notes, few, " of ", figures,
                    " figures have too few repetitions to be judged: that "
                    "needs 2 on each side (//:study -- --repetitions, "
                    "comm_bench --relaunch).\n");
  }
  if (const size_t unclear = CountOf(comparison, Verdict::kUnclear);
      unclear > 0) {
    absl::StrAppendFormat(
        &notes,
        "%d of %d figures changed by more than %g %%, which may be chance: "
        "more repetitions would decide it.\n",
        unclear, figures, 100 * threshold);
  }
  return notes;
}

std::string ResultLine(const Comparison& comparison, double threshold) {
  const std::string by = absl::StrFormat("%g %%", 100 * threshold);
  std::vector<std::string> worse;
  for (const Change& change : comparison.changes) {
    if (change.verdict != Verdict::kWorse) continue;
    worse.push_back(absl::StrCat(change.name, ", ", change.metric->name, " (",
                                 RatioText(change), ")"));
  }
  if (!worse.empty()) {
    return absl::StrCat("Worse by more than ", by, ": ",
                        absl::StrJoin(worse, "; "), ".\n");
  }
  if (CountOf(comparison, Verdict::kTooFew) == comparison.changes.size()) {
    return "Nothing could be judged.\n";
  }
  return absl::StrCat("Nothing is known to be worse by more than ", by, ".\n");
}

// What one side lacks, and what was left out of a side.
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

// Text as Markdown that looks the same.
std::string EscapeMarkdown(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::StrContains("\\`*_[]<>|&#~", c)) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// The lines of `text` as a list.
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

// Of what is not the same.
std::string MarkdownTable(const Comparison& comparison) {
  std::vector<std::string> rule(Columns().size(), "---:");
  std::fill_n(rule.begin(), kLeftColumns, "---");
  std::string table = absl::StrCat(MarkdownRow(Columns()), MarkdownRow(rule));
  for (const Change& change : comparison.changes) {
    if (change.verdict == Verdict::kSame) continue;
    std::vector<std::string> row = RowOf(change);
    for (std::string& cell : row) cell = EscapeMarkdown(cell);
    absl::StrAppend(&table, MarkdownRow(row));
  }
  return table;
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "";
}

}  // namespace

std::string MissingText(const Comparison& comparison) {
  std::vector<std::string> missing;
  if (!comparison.lost.empty()) {
    missing.push_back(
        absl::StrCat("B lacks ", absl::StrJoin(comparison.lost, "; ")));
  }
  const size_t few = CountOf(comparison, Verdict::kTooFew);
  if (few > 0) {
    missing.push_back(absl::StrCat(few, " of ", comparison.changes.size(),
                                   " figures have too few repetitions"));
  }
  if (missing.empty()) return "";
  return absl::StrCat("Not all of A could be judged (--require_all): ",
                      absl::StrJoin(missing, "; "), ".\n");
}

std::string VerdictName(const Change& change) {
  const bool memory = change.metric->unit == Metric::Unit::kBytes;
  switch (change.verdict) {
    case Verdict::kWorse:
      return memory ? "larger" : "slower";
    case Verdict::kBetter:
      return memory ? "smaller" : "faster";
    case Verdict::kUnclear:
      return "unclear";
    case Verdict::kTooFew:
      return "too few";
    case Verdict::kSame:
      break;
  }
  return "same";
}

std::string ComparisonText(const RecordSet& a, const RecordSet& b,
                           const Comparison& comparison,
                           const ChangeConfig& config) {
  TextTable table(Columns(), kLeftColumns);
  for (const Change& change : comparison.changes) table.AddRow(RowOf(change));
  std::string text = absl::StrCat(SideText("A", a), SideText("B", b), "\n",
                                  table.ToString(), "\n");
  return absl::StrCat(text, Notes(comparison, config.threshold),
                      Remarks(a, b, comparison),
                      ResultLine(comparison, config.threshold));
}

std::string ComparisonMarkdown(const RecordSet& a, const RecordSet& b,
                               const Comparison& comparison,
                               const ChangeConfig& config,
                               const std::string& missing) {
  const bool passed = !comparison.HasRegression() && missing.empty();
  std::string text = Heading(passed ? "passed" : "failed");
  absl::StrAppend(
      &text, MarkdownLines(ResultLine(comparison, config.threshold) + missing),
      "\n");
  const size_t same = CountOf(comparison, Verdict::kSame);
  if (same < comparison.changes.size()) {
    absl::StrAppend(&text, MarkdownTable(comparison), "\n");
  }
  absl::StrAppend(&text, same, " of ", comparison.changes.size(),
                  " figures are the same.\n\n");
  return absl::StrCat(
      text, MarkdownLines(absl::StrCat(SideText("A", a), SideText("B", b),
                                       Notes(comparison, config.threshold),
                                       Remarks(a, b, comparison))));
}

std::string FailureMarkdown(const std::string& error) {
  return absl::StrCat(Heading("failed"),
                      MarkdownLines("Not compared: " + error + "\n"));
}

std::string ComparisonCsv(const Comparison& comparison) {
  std::string csv =
      "configuration,metric,verdict,unit,repetitions_a,repetitions_b,a,b,ratio,"
      "ratio_low,ratio_high,p,corrected_p\n";
  for (const Change& c : comparison.changes) {
    const std::vector<std::string> fields = {CsvField(c.name),
                                             std::string(c.metric->name),
                                             VerdictName(c),
                                             c.unit,
                                             absl::StrCat(c.repetitions_a),
                                             absl::StrCat(c.repetitions_b),
                                             Number(c.a),
                                             Number(c.b),
                                             Number(c.ratio),
                                             Number(c.interval.low),
                                             Number(c.interval.high),
                                             Number(c.p_value),
                                             Number(c.corrected_p)};
    absl::StrAppend(&csv, absl::StrJoin(fields, ","), "\n");
  }
  return csv;
}

}  // namespace rankwise
