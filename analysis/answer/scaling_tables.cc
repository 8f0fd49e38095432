// Tables that compare cells with their base cases and with each other.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

std::string Name(const Cell& cell) {
  return absl::StrCat(cell.Trainer(), cell.oversubscribed ? "*" : "");
}

std::string Hundredths(double value) { return FixedText(value, 2); }

std::string BaseLine(const Cell& base) {
  return absl::StrFormat(
      "Base case: %s, %s per rank, batch %s. Runs have %d steps after "
      "warm-up; rates are geometric means over runs, shares medians; waits "
      "are shares of all ranks' time.",
      base.Name(), Counted(base.run.threads_per_rank, "thread"),
      BatchText(base.rank_batch), base.repetitions[0].steps);
}

// Explains the memory column; "" if it is empty and no share exceeded 100 %.
std::string MemoryLine(const Answer& answer) {
  std::set<std::string> peaks;
  bool above = false;
  for (const ScalingRow& row : answer.rows) {
    const Cell& cell = *row.cell;
    if (std::isnan(MemoryBandwidthShare(cell))) {
      above |= cell.run.step_bytes > 0 && cell.peak_bytes_per_second > 0;
      continue;
    }
    peaks.insert(absl::StrFormat("%.3g", 1e-9 * cell.peak_bytes_per_second));
  }
  constexpr char kAbove[] =
      " Shares above 100 % are not shown: caches saved some of the bytes, or "
      "other programs ran while the GB/s were measured.";
  if (peaks.empty())
    return above ? absl::StrCat("No share of memory bandwidth.", kAbove, "\n")
                 : "";
  return absl::StrCat(
      "memory: what a step has to move at least, of the measured ",
      absl::StrJoin(peaks, " or "), " GB/s of every device.",
      above ? kAbove : "", "\n");
}

// Explains the MFU column; "" if it is empty and no cell exceeded its peak.
std::string MfuLine(const Answer& answer) {
  std::set<std::string> peaks, above;
  double most = 0;
  for (const ScalingRow& row : answer.rows) {
    if (std::string text = AbovePeakText(*row.cell); !text.empty())
      above.insert(std::move(text));
    const double mfu = ModelFlopsUtilization(*row.cell);
    if (std::isnan(mfu)) continue;
    peaks.insert(PeakText(*row.cell));
    most = std::max(most, mfu);
  }
  std::string text;
  if (!peaks.empty()) {
    absl::StrAppend(
        &text, "MFU: 3 x the model's forward operations, of ",
        absl::StrJoin(peaks, " or "), " of every device.",
        most > 1 ? " Above 100 %, this stated peak is too low." : "", "\n");
  }
  if (!above.empty()) {
    absl::StrAppend(
        &text, "No MFU: ", absl::StrJoin(above, ", "),
        " computed faster than the measured peak: other programs ran while it "
        "was measured. Delete ~/.cache/rankwise/peak-*.json and record again, "
        "or pass --peak_tflops.\n");
  }
  return text;
}

// A base case has a speedup of 1; other rows without an efficiency show dashes.
void AddEfficiency(const ScalingRow& row, Table& table) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const Efficiency one = row.efficiency.value_or(
      Efficiency{.speedup = row.scaling == "base" ? 1 : kUnknown,
                 .speedup_interval = {kUnknown, kUnknown},
                 .efficiency = kUnknown,
                 .efficiency_interval = {kUnknown, kUnknown},
                 .warning = ""});
  table.Add("speedup", "speedup", Fixed(one.speedup, 2));
  table.Add("95 %", "speedup_low,speedup_high",
            Ends(one.speedup_interval, Hundredths), kNotOnTerminal);
  table.Add("efficiency", "efficiency", Share(one.efficiency));
  table.Add("95 % interval", "efficiency_low,efficiency_high",
            Ends(one.efficiency_interval, PercentDigits));
}

// The row's caveats, or the reason that it has no efficiency.
std::string Remarks(const ScalingRow& row) {
  std::vector<std::string> remarks = MarksOf(*row.cell);
  remarks.push_back(row.efficiency.ok()
                        ? row.efficiency->warning
                        : std::string(row.efficiency.status().message()));
  std::erase(remarks, "");
  return absl::StrJoin(remarks, "; ");
}

// The shares of the hardware's limits that the cell reaches.
void AddHardware(const Cell& cell, Table& table) {
  table.Add("MFU", "mfu", Share(ModelFlopsUtilization(cell)), 0, "-");
  table.Add("memory", "memory_share", Share(MemoryBandwidthShare(cell)), 0,
            "-");
}

Table ScalingTable(const Answer& answer) {
  const RateColumn rate(answer.cells);
  const Labels labels(answer.cells);
  std::vector<std::string> lines;
  std::set<const Cell*> bases;
  for (const ScalingRow& row : answer.rows) {
    if (row.scaling == "base") lines.push_back(BaseLine(*row.cell));
    if (row.base != nullptr) bases.insert(row.base);
  }
  Table table = {"scaling-table", "Scaling", absl::StrJoin(lines, "\n"),
                 absl::StrCat(MfuLine(answer), MemoryLine(answer))};
  for (const ScalingRow& row : answer.rows) {
    const Cell& cell = *row.cell;
    // The notes explain the marks.
    const bool forced = row.efficiency.ok() && !row.efficiency->warning.empty();
    table.AddRow();
    table.Add("trainer", "trainer",
              {absl::StrCat(Name(cell), forced ? "!" : ""), {cell.Trainer()}},
              kLeft);
    table.Add("scaling", "scaling", Word(row.scaling), kLeft);
    table.Add("ranks", "ranks", Whole(cell.run.world_size));
    table.Add("batch/rank", "batch_per_rank", Batch(cell.rank_batch));
    table.Add("runs", "runs", Whole(std::ssize(cell.repetitions)));
    table.Add(rate.name(), RateName(rate.name()),
              Fixed(rate.Of(cell, cell.ExamplesPerSecond()), 0));
    table.Add("step ms", "step_seconds",
              Milliseconds(MedianOf(cell, &Throughput::step_seconds)),
              kNotOnTerminal);
    AddEfficiency(row, table);
    table.Add("comm wait", "comm_wait_share",
              Share(MedianOf(cell, &Throughput::comm_wait_share)));
    table.Add("data wait", "data_wait_share",
              Share(MedianOf(cell, &Throughput::data_wait_share)));
    AddHardware(cell, table);
    table.Add("peak MB", "peak_bytes", Megabytes(cell.peak_bytes),
              kNotOnTerminal, "-");
    table.Add("peak TFLOPS", "peak_tflops",
              Digits(cell.peak_tflops > 0 ? cell.peak_tflops : std::nan("")),
              kInFile);
    table.Add("base case", "base",
              Word(row.base == nullptr ? "" : labels.Of(row.base)),
              kLeft | (bases.size() > 1 ? kNotOnTerminal : kInFile));
    table.Add("remarks", "remarks", Word(Remarks(row)),
              kWrapped | kNotOnTerminal, "");
  }
  return table;
}

// The trends of the serial fractions, and the reasons for laws not fitted.
std::string LawNotes(const Answer& answer) {
  std::string notes;
  for (const ScalingSeries& series : answer.series) {
    if (!series.serial_trend.empty()) {
      absl::StrAppend(&notes, TrendSentence(series), "\n");
    }
    if (!series.no_law.empty()) {
      absl::StrAppend(&notes, "Amdahl's law was not fitted to ", series.trainer,
                      ": ", series.no_law, ".\n");
    }
  }
  return notes;
}

Table LawTable(const Answer& answer) {
  Table table = {"law-table", "Serial fractions", "", LawNotes(answer),
                 /*on_terminal=*/false};
  for (const ScalingSeries& series : answer.series) {
    const auto add = [&](const char* law, const std::string& ranks,
                         double value, const Interval& interval, double error) {
      table.AddRow();
      table.Add("trainer", "trainer", Word(series.trainer), kLeft);
      table.Add("scaling", "scaling", Word(ScalingName(series.scaling)), kLeft);
      table.Add("law", "law", Word(law), kLeft);
      table.Add("ranks", "ranks", Word(ranks));
      table.Add("serial fraction", "serial_fraction", Digits(value));
      table.Add("95 %", "serial_fraction_low,serial_fraction_high",
                Ends(interval, DigitsText));
      table.Add("median error", "median_relative_error", Share(error));
    };
    if (series.law.has_value()) {
      add("Amdahl", "all", series.law->serial_fraction, series.law->interval,
          series.law->median_relative_error);
    }
    for (const SerialFraction& one : series.serial_fractions) {
      add("Karp-Flatt", absl::StrCat(one.world_size), one.value, one.interval,
          std::nan(""));
    }
  }
  return table;
}

Figure RelativeTime(const LayoutRow& row, bool is_fastest) {
  const Interval& interval = row.behind.interval;
  const std::string ratio = CsvNumber(row.behind.value);
  if (is_fastest) return {"fastest", {ratio, "", ""}};
  const std::string ends =
      std::isnan(interval.low) ? "" : " " + IntervalText(interval, Hundredths);
  return {absl::StrCat(FixedText(row.behind.value, 2), ends,
                       row.separated ? "" : " ~"),
          {ratio, CsvNumber(interval.low), CsvNumber(interval.high)}};
}

// Adds exposed communication by axis, which is unknown for captured steps, and
// bubble, in milliseconds. `ledger` may be nullptr.
void AddWaiting(const Ledger* ledger, Table& table) {
  const bool captured = ledger != nullptr && ledger->IsCaptured();
  for (const ExposedAxis& axis : kExposedAxes) {
    table.Add(axis.axis, absl::StrCat("exposed_", axis.axis, "_seconds"),
              Milliseconds(ledger == nullptr || captured
                               ? std::nan("")
                               : ledger->critical.*axis.seconds));
  }
  table.Add("bubble", "bubble_seconds",
            Milliseconds(ledger == nullptr ? std::nan("")
                                           : ledger->critical.bubble_seconds));
}

// For more ranks, terminals and pages show only the smallest and largest value.
constexpr size_t kMostRanksShown = 4;

// The metric's medians over repetitions, in order of the pipeline's ranks,
// replica after replica: "48.1 52.0". The CSV field has the unrounded values of
// all ranks.
Figure ByRank(const Cell& cell, double PipelineRankUse::*metric, double scale,
              int decimals) {
  std::vector<std::string> texts, fields;
  std::vector<double> medians;
  for (size_t rank = 0; rank < cell.pipelines[0].ranks.size(); ++rank) {
    medians.push_back(
        Median(NumbersOf(cell.pipelines, [&](const PipelineUse& use) {
          return use.ranks[rank].*metric;
        })));
    texts.push_back(FixedText(scale * medians.back(), decimals));
    fields.push_back(CsvNumber(medians.back()));
  }
  const std::string all = absl::StrJoin(fields, " ");
  if (texts.size() <= kMostRanksShown)
    return {absl::StrJoin(texts, " "), {all}};
  const auto [least, most] = absl::c_minmax_element(medians);
  return {absl::StrCat(FixedText(scale * *least, decimals), " to ",
                       FixedText(scale * *most, decimals)),
          {all}};
}

// "4 x 16": micro-batches per step, and examples per micro-batch.
Figure MicroBatches(const Cell& cell) {
  const PipelineUse& use = cell.pipelines[0];
  const double examples = static_cast<double>(cell.global_batch) /
                          static_cast<double>(use.replicas * use.micro_batches);
  return {absl::StrCat(use.micro_batches, " x ", BatchText(examples)),
          {absl::StrCat(use.micro_batches), CsvNumber(examples)}};
}

void AddPipeline(const Cell& cell, const Labels& labels, Table& times,
                 Table& ranks) {
  const auto add = [&](const char* header, const char* name,
                       double PipelineUse::*metric, Figure (*show)(double)) {
    times.Add(header, name, show(MedianOf(cell, metric)));
  };
  const PipelineUse& use = cell.pipelines[0];
  for (Table* table : {&times, &ranks}) {
    table->AddRow();
    table->Add("pipeline", "pipeline", Word(Name(cell)), kLeft);
    table->Add("ranks", "ranks", Whole(cell.run.world_size));
    table->Add("configuration", "configuration", Word(labels.Of(&cell)),
               kLeft | kNotOnTerminal);
  }
  times.Add("stages", "stages", Whole(use.stages), kNotOnTerminal);
  times.Add("replicas", "replicas", Whole(use.replicas), kNotOnTerminal);
  times.Add("micro-batches", "micro_batches,examples_per_micro_batch",
            MicroBatches(cell));
  add("wall bubble", "wall_bubble", &PipelineUse::wall_bubble, Share);
  add("predicted", "predicted_wall_bubble", &PipelineUse::predicted_wall_bubble,
      Share);
  add("span bubble", "span_bubble", &PipelineUse::span_bubble, Share);
  add("predicted", "predicted_span_bubble", &PipelineUse::predicted_span_bubble,
      Share);
  add("schedule ms", "schedule_seconds", &PipelineUse::schedule_seconds,
      Milliseconds);
  add("predicted", "predicted_seconds", &PipelineUse::predicted_seconds,
      Milliseconds);
  times.Add("error", "error",
            SignedShare(MedianOf(cell, &PipelineUse::predicted_seconds) /
                            MedianOf(cell, &PipelineUse::schedule_seconds) -
                        1));
  ranks.Add("idle % by rank", "idle_share_by_rank",
            ByRank(cell, &PipelineRankUse::idle_share, 100, 1));
  ranks.Add("waiting % by rank", "wait_share_by_rank",
            ByRank(cell, &PipelineRankUse::wait_share, 100, 1));
  ranks.Add("peak activations", "peak_activations_by_rank",
            ByRank(cell, &PipelineRankUse::peak_activations, 1, 0));
  ranks.Add(
      "transfer ms", "transfer_seconds",
      Milliseconds(MedianOf(cell, &PipelineUse::boundary_transfer_seconds)));
  ranks.Add("transfer KB", "transfer_bytes",
            Fixed(MedianOf(cell, &PipelineUse::boundary_bytes), 0, 1e-3));
}

}  // namespace

std::string RateName(absl::string_view unit) {
  return absl::StrReplaceAll(unit, {{"/s", "_per_second"}});
}

Table LayoutTable(const Answer& answer) {
  const RateColumn rate(answer.cells);
  Table table = {
      "layout-table", "Layouts of ranks",
      "Layouts of ranks, the fastest of each size first; relative time with a "
      "95 % interval that is simultaneous over all pairs of layouts (~: not "
      "separated from the fastest, as the interval contains 1); MB of the "
      "fullest rank; exposed communication along each axis and bubble of the "
      "critical rank's step, ms; the largest extra cost compared with the "
      "fastest layout on the same examples:"};
  for (const LayoutComparison& layouts : answer.layouts) {
    for (const LayoutRow& row : layouts.rows) {
      const Cell& cell = *row.cell;
      const bool is_fastest = &row == &layouts.rows.front();
      table.AddRow();
      table.Add("layout", "layout", Word(cell.Trainer()), kLeft);
      table.Add("scaling", "scaling", Word(ScalingName(layouts.scaling)),
                kLeft);
      table.Add("ranks", "ranks", Whole(layouts.world_size));
      table.Add("batch/rank", "batch_per_rank",
                Batch(static_cast<double>(cell.global_batch) /
                      static_cast<double>(layouts.world_size)));
      table.Add(rate.name(), RateName(rate.name()),
                Fixed(rate.Of(cell, row.rate), 0));
      table.Add("95 % interval", "rate_low,rate_high",
                Ends({rate.Of(cell, row.rate_interval.low),
                      rate.Of(cell, row.rate_interval.high)},
                     [](double x) { return FixedText(x, 0); }));
      table.Add("relative time",
                "relative_time,relative_time_low,relative_time_high",
                RelativeTime(row, is_fastest));
      table.Add("separated", "separated_from_the_fastest",
                Word(is_fastest      ? "fastest"
                     : row.separated ? "yes"
                                     : "no"),
                kInFile);
      table.Add("MB", "peak_bytes", Megabytes(cell.peak_bytes));
      AddHardware(cell, table);
      AddWaiting(row.ledger, table);
      table.Add("spends more", "spends_more", Word(row.spends_more), kLeft, "");
    }
  }
  return table;
}

std::vector<Table> PipelineTables(absl::Span<const Cell> cells) {
  Table times = {
      "pipeline-table", "Pipelines",
      "Pipelines: how long ranks compute nothing, of the slowest rank's time "
      "in the schedule (wall bubble), and between their first and last action "
      "(span bubble); next to each what simulating the schedule predicts."};
  Table ranks = {
      "pipeline-rank-table", "Ranks of the pipelines",
      "Ranks of the pipelines: shares of each rank's own time in the schedule. "
      "Transfers are per step and stage boundary; peak activations are counted "
      "per stage and micro-batch."};
  const Labels labels(cells);
  for (const Cell& cell : cells) {
    if (cell.pipelines.empty() || cell.IsAblation()) continue;
    AddPipeline(cell, labels, times, ranks);
  }
  return {times, ranks};
}

std::vector<Table> ScalingTables(const Answer& answer) {
  return {ScalingTable(answer), LawTable(answer), LayoutTable(answer)};
}

}  // namespace rankwise
