#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/plan/score.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"

namespace rankwise {
namespace {

// Replaces control characters, which a terminal would obey: record files may
// contain any text.
std::string Harmless(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return absl::ascii_iscntrl(c) && c != '\n'; }, '?');
  return text;
}

std::vector<Table> PlannerTables(const Answer& answer) {
  if (!answer.plan_score.has_value()) return {};
  std::vector<Table> tables = plan::PlanScoreTables(*answer.plan_score);
  tables[0].caption =
      "Layouts of gpt as //analysis:plan predicts them from runs without "
      "communication and from comm_bench, and what its choices cost:";
  tables[0].notes += answer.plan_score->warning;
  return tables;
}

}  // namespace

double MedianOf(const Cell& cell, double PipelineUse::*metric) {
  return Median(NumbersOf(cell.pipelines, metric));
}

double MedianOf(const Cell& cell, double Throughput::*metric) {
  return Median(cell.Values(metric));
}

std::vector<std::string> MarksOf(const Cell& cell) {
  std::vector<std::string> marks;
  if (cell.oversubscribed) marks.push_back("more threads than cores");
  if (!cell.shared_device.empty()) {
    marks.push_back(absl::StrCat("ranks shared ", cell.shared_device));
  }
  if (cell.several_devices_per_rank) {
    marks.push_back("several devices per rank");
  }
  if (cell.repetitions.front().captured) marks.push_back("captured steps");
  return marks;
}

std::vector<Table> TablesOf(const Answer& answer) {
  std::vector<Table> tables;
  for (std::vector<Table> part :
       {ScalingTables(answer), PlannerTables(answer),
        PipelineTables(answer.cells), LedgerTables(answer), CostTables(answer),
        LayerTables(answer), LearningTables(answer)}) {
    absl::c_move(part, std::back_inserter(tables));
  }
  std::erase_if(tables, [](const Table& table) { return table.rows.empty(); });
  return tables;
}

std::string AnswerText(const Answer& answer) {
  std::string text;
  if (answer.rows.empty()) {
    text = "No run could be measured.\n";
  } else {
    for (const Table& table : TablesOf(answer)) text += TerminalText(table);
  }
  for (const Finding& finding : answer.findings) {
    absl::StrAppend(&text, finding.title, "\n  ",
                    absl::StrReplaceAll(finding.text, {{"\n", "\n  "}}), "\n");
  }
  for (const std::string& note : answer.notes) {
    absl::StrAppend(&text, note, ".\n");
  }
  return Harmless(std::move(text));
}

}  // namespace rankwise
