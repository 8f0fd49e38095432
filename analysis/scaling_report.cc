#include "analysis/scaling_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/cell.h"
#include "analysis/efficiency.h"
#include "analysis/pipeline_report.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

constexpr Scaling kScalings[] = {Scaling::kStrong, Scaling::kWeak};

// One line of the table: a cell under one way of scaling, or as a base case.
struct Row {
  const Cell* cell = nullptr;
  std::string scaling;
  const Cell* base = nullptr;  // null: this is the base case, or none fits
  absl::StatusOr<Efficiency> efficiency = absl::NotFoundError("");
};

double MedianOf(const Cell& cell, double Throughput::*metric) {
  return Median(cell.Values(metric));
}

// Fits `cell` into the ways of scaling under which it has a base case. A cell
// of the base's own world size is a row of both.
std::vector<Row> RowsOf(absl::Span<const Cell> cells, const Cell& cell,
                        const BootstrapConfig& bootstrap) {
  const ComparisonConfig comparison{bootstrap, /*allow_oversubscribed=*/true};
  std::vector<Row> rows;
  absl::Status refusal;
  for (Scaling scaling : kScalings) {
    const absl::StatusOr<const Cell*> base = FindBase(cells, cell, scaling);
    if (!base.ok()) return {{&cell, "-", nullptr, base.status()}};
    if (*base == &cell) return {{&cell, "base", nullptr}};
    absl::Status comparable =
        CheckComparable(**base, cell, scaling, comparison);
    if (!comparable.ok()) {
      refusal.Update(comparable);
      continue;
    }
    if (!rows.empty() && rows[0].base == *base) {
      rows[0].scaling = "both";
      continue;
    }
    rows.push_back({&cell, std::string(ScalingName(scaling)), *base,
                    CompareToBase(**base, cell, scaling, comparison)});
  }
  if (rows.empty()) rows.push_back({&cell, "-", nullptr, refusal});
  return rows;
}

// Base cases first, then what is compared by strong, then by weak scaling.
int Order(const Row& row) {
  if (row.scaling == "base") return 0;
  if (row.scaling == "both") return 1;
  if (row.scaling == "strong") return 2;
  return row.scaling == "weak" ? 3 : 4;
}

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

std::string PercentInterval(const Interval& interval) {
  return absl::StrFormat("[%.1f, %.1f]", 100 * interval.low,
                         100 * interval.high);
}

std::vector<std::string> Cells(const Row& row) {
  const Cell& cell = *row.cell;
  std::string speedup = "-", efficiency = "-", interval = "-";
  if (row.scaling == "base") speedup = "1.00";
  if (row.efficiency.ok()) {
    speedup = absl::StrFormat("%.2f", row.efficiency->speedup);
    efficiency = Percent(row.efficiency->efficiency);
    interval = PercentInterval(row.efficiency->efficiency_interval);
  }
  return {
      absl::StrCat(cell.Trainer(), cell.oversubscribed ? "*" : ""),
      row.scaling,
      absl::StrCat(cell.run.world_size),
      BatchText(cell.rank_batch),
      absl::StrCat(cell.repetitions.size()),
      absl::StrFormat("%.0f", MedianOf(cell, &Throughput::images_per_second)),
      speedup,
      efficiency,
      interval,
      Percent(MedianOf(cell, &Throughput::exposed_comm_share)),
      Percent(MedianOf(cell, &Throughput::data_wait_share))};
}

std::string BaseLine(const Cell& base) {
  return absl::StrFormat(
      "Base case: %s, %d thread%s per rank, batch %s; medians over "
      "repetitions of %d steps after warm-up.\n",
      base.Name(), base.run.threads_per_rank,
      base.run.threads_per_rank == 1 ? "" : "s", BatchText(base.rank_batch),
      base.repetitions[0].steps);
}

// Of the rows under one way of scaling the fastest of the largest world size;
// null without any.
const Row* BestOfTheLargest(absl::Span<const Row> rows, Scaling scaling) {
  const auto rank = [](const Row& row) {
    return std::make_pair(row.cell->run.world_size, row.efficiency->speedup);
  };
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.scaling != ScalingName(scaling) || !row.efficiency.ok()) continue;
    if (best == nullptr || rank(row) > rank(*best)) best = &row;
  }
  return best;
}

// That row in words.
std::string InWords(absl::Span<const Row> rows, Scaling scaling) {
  const Row* largest = BestOfTheLargest(rows, scaling);
  const std::string title =
      scaling == Scaling::kStrong ? "Strong scaling: " : "Weak scaling: ";
  if (largest == nullptr) {
    return absl::StrCat(title, "no efficiency, for want of a comparison.\n");
  }
  const Cell& cell = *largest->cell;
  const double ideal = static_cast<double>(cell.run.world_size) /
                       static_cast<double>(largest->base->run.world_size);
  const std::string held =
      scaling == Scaling::kStrong
          ? absl::StrCat("the same global batch of ", cell.global_batch)
          : absl::StrCat("the same batch of ", BatchText(cell.rank_batch),
                         " per rank");
  return absl::StrFormat(
      "%s%s, with %s, trains %.2f times as fast as %s (ideal %.3g): %s "
      "efficiency, 95 %% interval %s; %s of the ranks' time is exposed "
      "communication, %s waiting for data.\n",
      title, cell.Name(), held, largest->efficiency->speedup,
      largest->base->Name(), ideal, Percent(largest->efficiency->efficiency),
      PercentInterval(largest->efficiency->efficiency_interval),
      Percent(MedianOf(cell, &Throughput::exposed_comm_share)),
      Percent(MedianOf(cell, &Throughput::data_wait_share)));
}

// What the reader must know to trust the table, one line each.
std::string Notes(absl::Span<const Row> rows,
                  absl::Span<const std::string> left_out) {
  std::string notes;
  bool oversubscribed = false;
  for (const Row& row : rows) {
    oversubscribed |= row.cell->oversubscribed;
    if (row.scaling == "base" || row.efficiency.ok()) continue;
    absl::StrAppend(
        &notes, "No efficiency: ", row.efficiency.status().message(), ".\n");
  }
  if (oversubscribed) {
    absl::StrAppend(&notes,
                    "* more threads than cores: these rows say how the "
                    "ranks share the cores, not how training scales.\n");
  }
  for (const std::string& reason : left_out) {
    absl::StrAppend(&notes, "Left out: ", reason, ".\n");
  }
  return notes;
}

}  // namespace

std::string ScalingReport(absl::Span<const RunTrace> runs,
                          const ScalingReportConfig& config) {
  std::vector<std::string> left_out;
  const std::vector<Cell> cells =
      GroupIntoCells(runs, config.throughput, &left_out);
  std::vector<Row> rows;
  for (const Cell& cell : cells) {
    for (Row& row : RowsOf(cells, cell, config.bootstrap)) {
      rows.push_back(std::move(row));
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return Order(a) < Order(b);
  });
  if (rows.empty()) {
    return absl::StrCat("No run could be measured.\n", Notes(rows, left_out));
  }
  std::string text;
  TextTable table(
      {"trainer", "scaling", "ranks", "batch/rank", "runs", "images/s",
       "speedup", "efficiency", "95 % interval", "exposed comm", "data wait"},
      /*left_columns=*/2);
  for (const Row& row : rows) {
    if (row.scaling == "base") absl::StrAppend(&text, BaseLine(*row.cell));
    table.AddRow(Cells(row));
  }
  absl::StrAppend(&text, "\n", table.ToString(), "\n", PipelineTable(cells));
  for (Scaling scaling : kScalings) {
    absl::StrAppend(&text, InWords(rows, scaling));
  }
  return absl::StrCat(text, Notes(rows, left_out));
}

}  // namespace rankwise
