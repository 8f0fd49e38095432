// Tables of the parts of steps, and of losses of efficiency.

#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/ledger/ledger.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"

namespace rankwise {
namespace {

// Begins a row for a cell. Pages show the cell's label instead of the three
// columns that terminals show.
void AddCellRow(const Cell& cell, const Labels& labels, Table& table) {
  const char* ablation = cell.IsAblation() ? " without communication" : "";
  table.AddRow();
  table.Add("step of", "step_of", Word(absl::StrCat(cell.Trainer(), ablation)),
            kLeft | kNotOnPage);
  table.Add("ranks", "ranks", Whole(cell.run.world_size), kNotOnPage);
  table.Add("batch/rank", "batch_per_rank", Batch(cell.rank_batch), kNotOnPage);
  table.Add("configuration", "configuration", Word(labels.Of(&cell)),
            kLeft | kNotOnTerminal);
}

// Whether any critical rank waited along several axes. If so, the tables show
// exposed communication by axis.
bool WaitsAlongSeveral(const Answer& answer) {
  return absl::c_any_of(answer.ledgers, [](const CellLedger& entry) {
    const LedgerParts& parts = entry.ledger.critical;
    return absl::c_any_of(kExposedAxes, [&parts](const ExposedAxis& axis) {
      const double along = parts.*axis.seconds;
      return along != 0 && along != parts.ExposedSeconds();
    });
  });
}

void AddParts(const LedgerParts& parts, bool by_axis, Table& table) {
  table.Add("ms", "step_seconds", Milliseconds(parts.Total()));
  table.Add("compute", "compute_seconds", Milliseconds(parts.compute_seconds));
  table.Add("exposed comm", "exposed_seconds",
            Milliseconds(parts.ExposedSeconds()));
  for (const ExposedAxis& axis : kExposedAxes) {
    table.Add(absl::StrCat("exposed ", axis.axis),
              absl::StrCat("exposed_", axis.axis, "_seconds"),
              Milliseconds(parts.*axis.seconds), by_axis ? 0 : kInFile,
              MillisecondsColumn(0));
  }
  table.Add("bubble", "bubble_seconds", Milliseconds(parts.bubble_seconds));
  table.Add("data wait", "data_wait_seconds",
            Milliseconds(parts.data_wait_seconds));
  table.Add("residual", "residual_seconds",
            Milliseconds(parts.residual_seconds));
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

Table LedgerTable(const Answer& answer, const Labels& labels) {
  Table table = {"ledger-table", "Ledger, ms per step",
                 "Mean step of the critical rank, for which the others waited, "
                 "by part, ms:",
                 CapturedLine(answer)};
  const bool by_axis = WaitsAlongSeveral(answer);
  for (const CellLedger& entry : answer.ledgers) {
    const Ledger& ledger = entry.ledger;
    AddCellRow(*entry.cell, labels, table);
    AddParts(ledger.critical, by_axis, table);
    table.Add("imbalance", "imbalance_seconds",
              Milliseconds(ledger.imbalance_seconds), kNotOnTerminal);
    table.Add("due to noise", "noise_seconds",
              Milliseconds(ledger.noise_seconds), kNotOnTerminal);
    table.Add("median |residual|", "median_residual_share",
              Share(ledger.median_residual_share), kNotOnTerminal);
    table.Add("captured", "captured_seconds",
              Milliseconds(ledger.captured_seconds), kNotOnTerminal,
              MillisecondsColumn(0));
  }
  return table;
}

Table RankLedgerTable(const Answer& answer, const Labels& labels) {
  Table table = {"rank-ledger-table", "Ledger of every rank, ms per step",
                 "Mean step of each rank, whose exposed communication includes "
                 "waiting for late ranks:",
                 "", /*on_terminal=*/false};
  const bool by_axis = WaitsAlongSeveral(answer);
  for (const CellLedger& entry : answer.ledgers) {
    for (const RankLedger& place : entry.ledger.ranks) {
      AddCellRow(*entry.cell, labels, table);
      table.Add("rank", "rank",
                Word(place.stage < 0 ? absl::StrCat("rank ", place.rank)
                                     : absl::StrCat("stage ", place.stage)),
                kLeft);
      AddParts(place.parts, by_axis, table);
    }
  }
  return table;
}

// Only replicas in one process have rows.
Table FirstDeviceTable(const Answer& answer, const Labels& labels) {
  constexpr const char* kParts[] = {"scatter", "replicate",        "gather",
                                    "loss",    "scatter gradient", "reduce"};
  Table table = {"first-device-table", "The first device, ms per step",
                 "What the first device does in a step while the other "
                 "replicas wait, ms:"};
  for (const CellLedger& entry : answer.ledgers) {
    std::map<std::string, double> seconds = entry.ledger.first_device_seconds;
    if (seconds.empty()) continue;
    AddCellRow(*entry.cell, labels, table);
    for (const char* part : kParts) {
      table.Add(
          part,
          absl::StrCat(absl::StrReplaceAll(part, {{" ", "_"}}), "_seconds"),
          Milliseconds(seconds[part]));
    }
    table.Add("optimizer", "optimizer_seconds",
              Milliseconds(entry.ledger.optimizer_seconds));
  }
  return table;
}

Table CommunicationTable(const Answer& answer, const Labels& labels) {
  Table table = {
      "communication-table", "Communication by axis of the mesh",
      "Communication of a rank in a step along each axis of the mesh, mean "
      "over ranks; comm wait includes waiting for late ranks:"};
  for (const CellLedger& entry : answer.ledgers) {
    for (const AxisCommunication& along : entry.ledger.communication) {
      AddCellRow(*entry.cell, labels, table);
      table.Add("axis", "axis", Word(along.axis));
      table.Add("calls", "calls", Fixed(along.calls, 1));
      table.Add("KB", "bytes", Fixed(along.bytes, 0, 1e-3));
      table.Add("comm wait ms", "comm_wait_seconds",
                Milliseconds(along.wait_seconds));
    }
  }
  return table;
}

Table LossTable(const Answer& answer, const Labels& labels) {
  Table table = {
      "waterfall-table", "Losses of efficiency",
      "What each cause costs, in points of the ideal speed and ms of a step "
      "(negative: gained), the largest first. The terminal shows causes of a "
      "point or more beyond noise, of the layouts nearest to the ideal speed:"};
  const std::vector<const Waterfall*> notable = NotableWaterfalls(answer);
  for (const Waterfall& waterfall : answer.waterfalls) {
    std::vector<Loss> losses = waterfall.losses;
    absl::c_stable_sort(losses, [](const Loss& a, const Loss& b) {
      return a.efficiency_points > b.efficiency_points;
    });
    for (const Loss& loss : losses) {
      AddCellRow(*waterfall.cell, labels, table);
      if (!IsNotable(loss) || !absl::c_linear_search(notable, &waterfall))
        table.HideLastRow();
      table.Add("scaling", "scaling", Word(ScalingName(waterfall.scaling)),
                kLeft);
      table.Add("ideal ms", "ideal_seconds",
                Milliseconds(waterfall.ideal_seconds), kNotOnTerminal);
      table.Add("measured ms", "measured_seconds",
                Milliseconds(waterfall.measured_seconds), kNotOnTerminal);
      table.Add("of the ideal speed", "efficiency",
                Share(OfTheIdealSpeed(waterfall)));
      table.Add("cause", "cause", Word(LossName(loss.cause)), kLeft);
      table.Add("points lost", "efficiency_points",
                Fixed(loss.efficiency_points, 1, 100));
      table.Add("ms", "seconds", Milliseconds(loss.seconds));
      table.Add("95 %", "seconds_low,seconds_high",
                Ends(loss.interval, MillisecondsColumn));
      table.Add(
          "remark", "not_separated",
          {waterfall.merged.empty() ? ""
                                    : "not all causes separated: see the notes",
           {absl::StrJoin(waterfall.merged, "; ")}},
          kLeft, "");
    }
  }
  return table;
}

Table AblationTable(const Answer& answer, const Labels& labels) {
  Table table = {
      "ablation-table",
      "The ledger against runs without communication, ms per step",
      "How much shorter a step is without communication, ms, and the ledger's "
      "explanation: waiting (exposed comm, bubble) and slower computing. "
      "Disagreement: the explained over the measured difference, minus 1. It "
      "is unknown if the step did not get shorter, because the machine changed "
      "between the runs, and for captured steps, whose parts the ledger cannot "
      "separate:"};
  for (const Ablation& ablation : answer.ablations) {
    AddCellRow(*ablation.cell, labels, table);
    table.Add("shorter by", "saved_seconds",
              Milliseconds(ablation.saved_seconds));
    table.Add("exposed comm", "exposed_seconds",
              Milliseconds(ablation.exposed_seconds));
    table.Add("bubble", "bubble_seconds",
              Milliseconds(ablation.bubble_seconds));
    table.Add("slower computing", "slowed_seconds",
              Milliseconds(ablation.slowed_seconds));
    table.Add("disagreement", "disagreement",
              SignedShare(ablation.disagreement));
    table.Add("of exposed comm alone", "exposed_disagreement",
              SignedShare(ablation.exposed_disagreement));
    table.Add("captured", "captured",
              Word(ablation.captured ? "compute holds communication" : ""),
              kLeft, "");
  }
  return table;
}

}  // namespace

std::vector<Table> LedgerTables(const Answer& answer) {
  const Labels labels(answer.cells);
  return {LedgerTable(answer, labels),      RankLedgerTable(answer, labels),
          FirstDeviceTable(answer, labels), CommunicationTable(answer, labels),
          LossTable(answer, labels),        AblationTable(answer, labels)};
}

}  // namespace rankwise
