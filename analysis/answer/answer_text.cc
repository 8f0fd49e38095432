#include "analysis/answer/answer_text.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/findings.h"
#include "analysis/pipeline_report.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

double MedianOf(const Cell& cell, double Throughput::*metric) {
  return Median(cell.Values(metric));
}

std::string PercentInterval(const Interval& interval) {
  if (std::isnan(interval.low)) return "-";
  return absl::StrFormat("[%.1f, %.1f]", 100 * interval.low,
                         100 * interval.high);
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.2f", 1e3 * seconds);
}

// "ddp", with the marks that the notes explain.
std::string MarkedTrainer(const ScalingRow& row) {
  const bool forced = row.efficiency.ok() && !row.efficiency->warning.empty();
  return absl::StrCat(row.cell->Trainer(), row.cell->oversubscribed ? "*" : "",
                      forced ? "!" : "");
}

std::vector<std::string> RowCells(const ScalingRow& row) {
  const Cell& cell = *row.cell;
  std::string speedup = "-", efficiency = "-", interval = "-";
  if (row.scaling == "base") speedup = "1.00";
  if (row.efficiency.ok()) {
    speedup = absl::StrFormat("%.2f", row.efficiency->speedup);
    efficiency = PercentText(row.efficiency->efficiency);
    interval = PercentInterval(row.efficiency->efficiency_interval);
  }
  return {
      MarkedTrainer(row),
      row.scaling,
      absl::StrCat(cell.run.world_size),
      BatchText(cell.rank_batch),
      absl::StrCat(cell.repetitions.size()),
      absl::StrFormat("%.0f", MedianOf(cell, &Throughput::images_per_second)),
      speedup,
      efficiency,
      interval,
      PercentText(MedianOf(cell, &Throughput::exposed_comm_share)),
      PercentText(MedianOf(cell, &Throughput::data_wait_share))};
}

std::string BaseLine(const Cell& base) {
  return absl::StrFormat(
      "Base case: %s, %d thread%s per rank, batch %s; medians over "
      "repetitions of %d steps after warm-up.\n",
      base.Name(), base.run.threads_per_rank,
      base.run.threads_per_rank == 1 ? "" : "s", BatchText(base.rank_batch),
      base.repetitions[0].steps);
}

std::string ScalingTable(const Answer& answer) {
  std::string text;
  TextTable table(
      {"trainer", "scaling", "ranks", "batch/rank", "runs", "images/s",
       "speedup", "efficiency", "95 % interval", "exposed comm", "data wait"},
      /*left_columns=*/2);
  for (const ScalingRow& row : answer.rows) {
    if (row.scaling == "base") absl::StrAppend(&text, BaseLine(*row.cell));
    table.AddRow(RowCells(row));
  }
  return absl::StrCat(text, "\n", table.ToString(), "\n");
}

std::string LedgerName(const Cell& cell) {
  return absl::StrCat(cell.Trainer(),
                      cell.IsAblation() ? " without communication" : "");
}

std::string CapturedLine(const Answer& answer) {
  std::vector<std::string> names;
  for (const CellLedger& entry : answer.ledgers) {
    if (!entry.ledger.IsCaptured() || entry.cell->IsAblation()) continue;
    names.push_back(absl::StrCat(entry.cell->Name(), ", batch ",
                                 BatchText(entry.cell->rank_batch)));
  }
  if (names.empty()) return "";
  return absl::StrCat(
      "Captured steps: compute holds forward, backward, communication and "
      "update, which one graph launch does not tell apart (",
      absl::StrJoin(names, "; "), ").\n");
}

// Of the critical rank's mean step.
std::string LedgerTable(const Answer& answer) {
  if (answer.ledgers.empty()) return "";
  TextTable table({"step of", "ranks", "batch/rank", "ms", "compute",
                   "exposed comm", "bubble", "data wait", "residual"},
                  /*left_columns=*/1);
  for (const CellLedger& entry : answer.ledgers) {
    const LedgerParts& parts = entry.ledger.critical;
    table.AddRow(
        {LedgerName(*entry.cell), absl::StrCat(entry.cell->run.world_size),
         BatchText(entry.cell->rank_batch), Milliseconds(parts.Total()),
         Milliseconds(parts.compute_seconds),
         Milliseconds(parts.exposed_comm_seconds),
         Milliseconds(parts.bubble_seconds),
         Milliseconds(parts.data_wait_seconds),
         Milliseconds(parts.residual_seconds)});
  }
  return absl::StrCat(
      "Where the mean step of the rank that the others waited "
      "for went, ms:\n\n",
      table.ToString(), CapturedLine(answer), "\n");
}

std::string FindingsText(const Answer& answer) {
  std::string text;
  for (const Finding& finding : answer.findings) {
    absl::StrAppend(&text, finding.title, "\n  ",
                    absl::StrReplaceAll(finding.text, {{"\n", "\n  "}}), "\n");
  }
  return text;
}

}  // namespace

std::string AnswerText(const Answer& answer) {
  std::string text =
      answer.rows.empty()
          ? "No run could be measured.\n"
          : absl::StrCat(ScalingTable(answer), PipelineTable(answer.cells),
                         LedgerTable(answer));
  absl::StrAppend(&text, FindingsText(answer));
  for (const std::string& note : answer.notes) {
    absl::StrAppend(&text, note, ".\n");
  }
  return text;
}

}  // namespace rankwise
