#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/answer.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

// More ranks than this are shown by their least and most idle one.
constexpr size_t kMostRanksShown = 4;

// "48.1 52.0", in order of the pipeline's ranks, replica after replica.
std::string ByRank(const Cell& cell, double PipelineRankUse::*metric,
                   double unit, const absl::ParsedFormat<'f'>& format) {
  std::vector<double> medians;
  for (size_t rank = 0; rank < cell.pipelines[0].ranks.size(); ++rank) {
    std::vector<double> values;
    for (const PipelineUse& use : cell.pipelines) {
      values.push_back(use.ranks[rank].*metric / unit);
    }
    medians.push_back(Median(values));
  }
  if (medians.size() > kMostRanksShown) {
    const auto [least, most] = absl::c_minmax_element(medians);
    return absl::StrCat(absl::StrFormat(format, *least), " to ",
                        absl::StrFormat(format, *most));
  }
  return absl::StrJoin(medians, " ", [&format](std::string* out, double value) {
    absl::StrAppend(out, absl::StrFormat(format, value));
  });
}

// "4 x 16": micro-batches a step, and their examples.
std::string MicroBatches(const Cell& cell) {
  const PipelineUse& use = cell.pipelines[0];
  const double examples = static_cast<double>(cell.global_batch) /
                          static_cast<double>(use.replicas * use.micro_batches);
  return absl::StrCat(use.micro_batches, " x ", BatchText(examples));
}

std::string Name(const Cell& cell) {
  return absl::StrCat(cell.Trainer(), cell.oversubscribed ? "*" : "");
}

std::vector<std::string> TimesOf(const Cell& cell) {
  const double seconds = MedianOf(cell, &PipelineUse::schedule_seconds);
  const double predicted = MedianOf(cell, &PipelineUse::predicted_seconds);
  const double error = predicted / seconds - 1;
  return {Name(cell),
          absl::StrCat(cell.run.world_size),
          MicroBatches(cell),
          PercentText(MedianOf(cell, &PipelineUse::wall_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::predicted_wall_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::span_bubble)),
          PercentText(MedianOf(cell, &PipelineUse::predicted_span_bubble)),
          MillisecondsColumn(seconds),
          MillisecondsColumn(predicted),
          SignedPercentText(error)};
}

std::vector<std::string> RanksOf(const Cell& cell) {
  const absl::ParsedFormat<'f'> percent("%.1f"), count("%.0f");
  return {Name(cell),
          absl::StrCat(cell.run.world_size),
          ByRank(cell, &PipelineRankUse::idle_share, 0.01, percent),
          ByRank(cell, &PipelineRankUse::wait_share, 0.01, percent),
          ByRank(cell, &PipelineRankUse::peak_activations, 1, count),
          MillisecondsColumn(
              MedianOf(cell, &PipelineUse::boundary_transfer_seconds)),
          absl::StrFormat("%.0f",
                          MedianOf(cell, &PipelineUse::boundary_bytes) / 1e3)};
}

std::string PercentInterval(const Interval& interval) {
  if (std::isnan(interval.low)) return "-";
  return absl::StrFormat("[%.1f, %.1f]", 100 * interval.low,
                         100 * interval.high);
}

// "ddp", with the marks that the notes explain.
std::string MarkedTrainer(const ScalingRow& row) {
  const bool forced = row.efficiency.ok() && !row.efficiency->warning.empty();
  return Name(*row.cell) + (forced ? "!" : "");
}

std::vector<std::string> RowCells(const ScalingRow& row, const RateColumn& rate,
                                  bool with_mfu, bool with_memory) {
  const Cell& cell = *row.cell;
  std::string speedup = "-", efficiency = "-", interval = "-";
  if (row.scaling == "base") speedup = "1.00";
  if (row.efficiency.ok()) {
    speedup = absl::StrFormat("%.2f", row.efficiency->speedup);
    efficiency = PercentText(row.efficiency->efficiency);
    interval = PercentInterval(row.efficiency->efficiency_interval);
  }
  std::vector<std::string> cells = {
      MarkedTrainer(row),
      row.scaling,
      absl::StrCat(cell.run.world_size),
      BatchText(cell.rank_batch),
      absl::StrCat(cell.repetitions.size()),
      absl::StrFormat("%.0f", rate.Of(cell, cell.ExamplesPerSecond())),
      speedup,
      efficiency,
      interval,
      PercentText(MedianOf(cell, &Throughput::comm_wait_share)),
      PercentText(MedianOf(cell, &Throughput::data_wait_share))};
  if (with_mfu) cells.push_back(PercentText(ModelFlopsUtilization(cell)));
  if (with_memory) cells.push_back(PercentText(MemoryBandwidthShare(cell)));
  return cells;
}

std::string BaseLine(const Cell& base) {
  return absl::StrFormat(
      "Base case: %s, %s per rank, batch %s. Runs have %d steps after "
      "warm-up; rates are geometric means over runs, shares medians; waits "
      "are shares of all ranks' time.\n",
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
    peaks.insert(
        absl::StrFormat("%.3g", 1e-9 * row.cell->peak_bytes_per_second));
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

std::string ScalingTable(const Answer& answer) {
  std::string text;
  const std::string mfu = MfuLine(answer), memory = MemoryLine(answer);
  const RateColumn rate(answer.cells);
  std::vector<std::string> header = {
      "trainer",       "scaling",   "ranks",    "batch/rank",
      "runs",          rate.name(), "speedup",  "efficiency",
      "95 % interval", "comm wait", "data wait"};
  if (!mfu.empty()) header.push_back("MFU");
  if (!memory.empty()) header.push_back("memory");
  TextTable table(std::move(header), /*left_columns=*/2);
  for (const ScalingRow& row : answer.rows) {
    if (row.scaling == "base") absl::StrAppend(&text, BaseLine(*row.cell));
    table.AddRow(RowCells(row, rate, !mfu.empty(), !memory.empty()));
  }
  return absl::StrCat(text, "\n", table.ToString(), mfu, memory, "\n");
}

std::string LedgerName(const Cell& cell) {
  return absl::StrCat(cell.Trainer(),
                      cell.IsAblation() ? " without communication" : "");
}

std::string CapturedLine(const Answer& answer) {
  std::vector<std::string> names;
  for (const CellLedger& entry : answer.ledgers) {
    if (!entry.ledger.IsCaptured() || entry.cell->IsAblation()) continue;
    names.push_back(CellLabel(*entry.cell));
  }
  if (names.empty()) return "";
  return absl::StrCat(
      "Captured steps: compute holds forward, backward, communication and "
      "update, which one graph launch does not separate (",
      absl::StrJoin(names, "; "), ").\n");
}

// "step of", "ranks" and "batch/rank" of a table about ledgers.
std::vector<std::string> LedgerColumns(const Cell& cell) {
  return {LedgerName(cell), absl::StrCat(cell.run.world_size),
          BatchText(cell.rank_batch)};
}

// The axes along which some critical rank waited, where some waited along
// several; none where what is exposed is of one axis anyway.
std::vector<ExposedAxis> AxesToShow(const Answer& answer) {
  std::vector<ExposedAxis> axes;
  bool several = false;
  for (const ExposedAxis& axis : kExposedAxes) {
    for (const CellLedger& entry : answer.ledgers) {
      const LedgerParts& parts = entry.ledger.critical;
      const double along = parts.*axis.seconds;
      if (along == 0) continue;
      several |= along != parts.ExposedSeconds();
      if (axes.empty() || axes.back().seconds != axis.seconds) {
        axes.push_back(axis);
      }
    }
  }
  return several ? axes : std::vector<ExposedAxis>();
}

// Of the critical rank's mean step.
std::string LedgerTable(const Answer& answer) {
  if (answer.ledgers.empty()) return "";
  const std::vector<ExposedAxis> axes = AxesToShow(answer);
  std::vector<std::string> header = {"step of", "ranks",   "batch/rank",
                                     "ms",      "compute", "exposed comm"};
  for (const ExposedAxis& axis : axes) {
    header.push_back(absl::StrCat("of it ", axis.axis));
  }
  header.insert(header.end(), {"bubble", "data wait", "residual"});
  TextTable table(std::move(header), /*left_columns=*/1);
  for (const CellLedger& entry : answer.ledgers) {
    const LedgerParts& parts = entry.ledger.critical;
    std::vector<double> seconds = {parts.Total(), parts.compute_seconds,
                                   parts.ExposedSeconds()};
    for (const ExposedAxis& axis : axes) {
      seconds.push_back(parts.*axis.seconds);
    }
    seconds.insert(seconds.end(),
                   {parts.bubble_seconds, parts.data_wait_seconds,
                    parts.residual_seconds});
    std::vector<std::string> row = LedgerColumns(*entry.cell);
    for (double part : seconds) row.push_back(MillisecondsColumn(part));
    table.AddRow(std::move(row));
  }
  return absl::StrCat(
      "Mean step of the critical rank, for which the others waited, by part, "
      "ms:\n\n",
      table.ToString(), CapturedLine(answer), "\n");
}

std::string CommunicationTable(const Answer& answer) {
  TextTable table(
      {"step of", "ranks", "batch/rank", "axis", "calls", "KB", "comm wait ms"},
      /*left_columns=*/1);
  bool any = false;
  for (const CellLedger& entry : answer.ledgers) {
    for (const AxisCommunication& along : entry.ledger.communication) {
      any = true;
      std::vector<std::string> row = LedgerColumns(*entry.cell);
      row.insert(row.end(), {along.axis, absl::StrFormat("%.1f", along.calls),
                             absl::StrFormat("%.0f", along.bytes / 1e3),
                             MillisecondsColumn(along.wait_seconds)});
      table.AddRow(std::move(row));
    }
  }
  if (!any) return "";
  return absl::StrCat(
      "Communication of a rank in a step along each axis of the mesh, mean "
      "over ranks; comm wait includes waiting for late ranks:\n\n",
      table.ToString(), "\n");
}

// Of replicas in one process.
std::string FirstDeviceTable(const Answer& answer) {
  constexpr const char* kParts[] = {"scatter", "replicate",        "gather",
                                    "loss",    "scatter gradient", "reduce"};
  std::vector<std::string> header = {"step of", "ranks", "batch/rank"};
  header.insert(header.end(), std::begin(kParts), std::end(kParts));
  header.push_back("optimizer");
  TextTable table(std::move(header), /*left_columns=*/1);
  bool any = false;
  for (const CellLedger& entry : answer.ledgers) {
    std::map<std::string, double> seconds = entry.ledger.first_device_seconds;
    if (seconds.empty()) continue;
    any = true;
    std::vector<std::string> row = LedgerColumns(*entry.cell);
    for (const char* part : kParts)
      row.push_back(MillisecondsColumn(seconds[part]));
    row.push_back(MillisecondsColumn(entry.ledger.optimizer_seconds));
    table.AddRow(std::move(row));
  }
  if (!any) return "";
  return absl::StrCat(
      "What the first device does in a step while the other replicas wait, "
      "ms:\n\n",
      table.ToString(), "\n");
}

std::string FindingsText(const Answer& answer) {
  std::string text;
  for (const Finding& finding : answer.findings) {
    absl::StrAppend(&text, finding.title, "\n  ",
                    absl::StrReplaceAll(finding.text, {{"\n", "\n  "}}), "\n");
  }
  return text;
}

// Record files may hold any text, and a terminal obeys control characters.
std::string Harmless(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return absl::ascii_iscntrl(c) && c != '\n'; }, '?');
  return text;
}

}  // namespace

double MedianOf(const Cell& cell, double PipelineUse::*metric) {
  std::vector<double> values;
  for (const PipelineUse& use : cell.pipelines) values.push_back(use.*metric);
  return Median(values);
}

double MedianOf(const Cell& cell, double Throughput::*metric) {
  return Median(cell.Values(metric));
}

std::string PipelineTable(absl::Span<const Cell> cells) {
  TextTable times(
      {"pipeline", "ranks", "micro-batches", "wall bubble", "predicted",
       "span bubble", "predicted", "schedule ms", "predicted", "error"},
      /*left_columns=*/1);
  TextTable ranks({"pipeline", "ranks", "idle % by rank", "waiting % by rank",
                   "peak activations", "transfer ms", "transfer KB"},
                  /*left_columns=*/1);
  bool any = false;
  for (const Cell& cell : cells) {
    if (cell.pipelines.empty() || cell.IsAblation()) continue;
    any = true;
    times.AddRow(TimesOf(cell));
    ranks.AddRow(RanksOf(cell));
  }
  if (!any) return "";
  return absl::StrCat(
      "Pipelines: how long ranks compute nothing, of the slowest rank's time "
      "in the schedule (wall bubble), and between their first and last action "
      "(span bubble); next to each what simulating the schedule predicts.\n\n",
      times.ToString(),
      "\nTheir ranks: of each one's own time in the schedule. Transfers are "
      "per step and boundary between stages, peak activations of one stage and "
      "micro-batch each.\n\n",
      ranks.ToString(), "\n");
}

std::string AnswerText(const Answer& answer) {
  std::string text =
      answer.rows.empty()
          ? "No run could be measured.\n"
          : absl::StrCat(ScalingTable(answer), LayoutTable(answer),
                         PlannerTable(answer), PipelineTable(answer.cells),
                         LedgerTable(answer), FirstDeviceTable(answer),
                         CommunicationTable(answer));
  absl::StrAppend(&text, FindingsText(answer));
  for (const std::string& note : answer.notes) {
    absl::StrAppend(&text, note, ".\n");
  }
  return Harmless(std::move(text));
}

}  // namespace rankwise
