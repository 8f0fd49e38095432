#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"

namespace rankwise {
namespace {

constexpr Scaling kScalings[] = {Scaling::kStrong, Scaling::kWeak,
                                 Scaling::kFixedMemory};

// Whether strong or weak scaling of a study with this batch starts from `base`.
bool IsOfBatch(const Cell& base, int64_t batch) {
  return base.global_batch == batch ||
         base.rank_batch == static_cast<double>(batch);
}

// Keeps the rows that start from the study's batch, or if there are none, those
// with the largest base batch.
void KeepMeant(std::vector<ScalingRow>& rows, const AnswerConfig& config) {
  const bool of_study = absl::c_any_of(rows, [&](const ScalingRow& row) {
    return IsOfBatch(*row.base, config.base_batch);
  });
  int64_t largest = 0;  // of the bases' global batches
  for (const ScalingRow& row : rows) {
    largest = std::max(largest, row.base->global_batch);
  }
  std::erase_if(rows, [&](const ScalingRow& row) {
    return of_study ? !IsOfBatch(*row.base, config.base_batch)
                    : row.base->global_batch < largest;
  });
}

// Turns weak scaling from another batch than the study's into fixed memory if
// the memory is equal too.
void NameFixedMemory(std::vector<ScalingRow>& rows,
                     const AnswerConfig& config) {
  for (ScalingRow& row : rows) {
    if (config.base_batch == 0 || IsOfBatch(*row.base, config.base_batch)) {
      continue;
    }
    if (CheckComparable(*row.base, *row.cell, Scaling::kFixedMemory,
                        config.comparison)
            .ok()) {
      row.scaling = std::string(ScalingName(Scaling::kFixedMemory));
    }
  }
}

std::vector<ScalingRow> RowsOf(absl::Span<const Cell> cells, const Cell& cell,
                               const AnswerConfig& config) {
  std::vector<ScalingRow> rows;
  absl::Status refusal;
  for (Scaling scaling : kScalings) {
    // Equal batches imply equal memory, so fixed memory would add nothing.
    if (scaling == Scaling::kFixedMemory && !rows.empty()) break;
    const absl::StatusOr<const Cell*> base = FindBase(cells, cell, scaling);
    if (!base.ok()) return {{&cell, "-", nullptr, base.status()}};
    if (*base == &cell) return {{&cell, "base", nullptr}};
    const absl::Status comparable =
        CheckComparable(**base, cell, scaling, config.comparison);
    refusal.Update(comparable);
    if (!comparable.ok()) continue;
    if (!rows.empty() && rows[0].base == *base) {
      rows[0].scaling = "both";
      continue;
    }
    rows.push_back({&cell, std::string(ScalingName(scaling)), *base,
                    CompareToBase(**base, cell, scaling, config.comparison)});
  }
  if (rows.empty()) return {{&cell, "-", nullptr, refusal}};
  KeepMeant(rows, config);
  NameFixedMemory(rows, config);
  return rows;
}

// Sort key of the row in the table.
size_t Order(const ScalingRow& row) {
  constexpr absl::string_view kOrder[] = {"base", "both", "strong", "weak",
                                          "fixed_memory"};
  return absl::c_find(kOrder, row.scaling) - std::begin(kOrder);
}

bool IsUnder(const ScalingRow& row, Scaling scaling) {
  return row.scaling == ScalingName(scaling) ||
         (row.scaling == "both" && scaling != Scaling::kFixedMemory);
}

double RanksOver(const Cell& cell, const Cell& base) {
  return static_cast<double>(cell.run.world_size) /
         static_cast<double>(base.run.world_size);
}

ScalingPoint PointOf(const Cell& cell, const Cell& base) {
  return {RanksOver(cell, base), cell.Values(&Throughput::examples_per_second)};
}

void FitLaw(ScalingSeries& series, const BootstrapConfig& bootstrap) {
  if (series.scaling != Scaling::kStrong) return;
  const Cell& base = *series.rows.front()->base;
  std::vector<ScalingPoint> points = {PointOf(base, base)};
  for (const ScalingRow* row : series.rows) {
    if (row->cell->run.world_size == base.run.world_size) continue;
    points.push_back(PointOf(*row->cell, base));
  }
  const absl::StatusOr<AmdahlsLaw> fit = FitAmdahl(points, bootstrap);
  if (fit.ok()) {
    series.law = *fit;
  } else {
    series.no_law = std::string(fit.status().message());
  }
}

// Empty unless the series is strong scaling.
std::vector<const ScalingRow*> RowsAboveTheBase(const ScalingSeries& series) {
  std::vector<const ScalingRow*> rows;
  if (series.scaling != Scaling::kStrong) return rows;
  absl::c_copy_if(
      series.rows, std::back_inserter(rows), [](const ScalingRow* row) {
        return row->cell->run.world_size > row->base->run.world_size;
      });
  return rows;
}

double RanksOf(const ScalingRow& row) {
  return RanksOver(*row.cell, *row.base);
}

double SerialFractionOf(const ScalingRow& row) {
  return KarpFlatt(row.efficiency->speedup, RanksOf(row));
}

// A serial fraction counts as constant if its relative change is below this.
constexpr double kSameFraction = 0.25;

// The 95 % interval of the last row's serial fraction minus `times` the first
// row's. The rows share a base case, so the two fractions are correlated: the
// interval is that of a sum over the logarithms of the three throughputs, each
// multiplied by the difference's derivative with respect to it.
Interval ChangeOfSerialFraction(const ScalingRow& first, const ScalingRow& last,
                                double times) {
  // d(1/S) / d(log X) = -1/S for the cell's throughput X, +1/S for the base's.
  const auto slope = [](const ScalingRow& row) {
    return 1 / row.efficiency->speedup / (1 - 1 / RanksOf(row));
  };
  const auto scaled = [](const Cell& cell, double factor) {
    return NumbersOf(cell.Values(&Throughput::examples_per_second),
                     [factor](double x) { return factor * std::log(x); });
  };
  const double of_first = times * slope(first), of_last = slope(last);
  const std::vector<double> samples[] = {
      scaled(*first.base, of_last - of_first), scaled(*first.cell, of_first),
      scaled(*last.cell, -of_last)};
  const double change =
      SerialFractionOf(last) - times * SerialFractionOf(first);
  const double half = HalfWidthOfSum(samples);
  return {change - half, change + half};
}

}  // namespace

std::vector<SerialFraction> SerialFractionsOf(const ScalingSeries& series) {
  std::vector<SerialFraction> fractions;
  for (const ScalingRow* row : RowsAboveTheBase(series)) {
    const Interval& speedup = row->efficiency->speedup_interval;
    SerialFraction& one = fractions.emplace_back();
    one.world_size = row->cell->run.world_size;
    one.value = SerialFractionOf(*row);
    one.interval = {std::nan(""), std::nan("")};
    if (speedup.low > 0) {
      one.interval = {KarpFlatt(speedup.high, RanksOf(*row)),
                      KarpFlatt(speedup.low, RanksOf(*row))};
    }
  }
  return fractions;
}

std::string SerialTrend(const ScalingSeries& series) {
  const std::vector<const ScalingRow*> rows = RowsAboveTheBase(series);
  if (rows.empty() ||
      rows.front()->cell->run.world_size == rows.back()->cell->run.world_size) {
    return "";
  }
  const ScalingRow &first = *rows.front(), &last = *rows.back();
  const Interval change = ChangeOfSerialFraction(first, last, 1);
  if (std::isnan(change.low)) return "";
  const std::string from_to = absl::StrCat(
      "from ", PercentText(SerialFractionOf(first)), " on ",
      first.cell->run.world_size, " ranks to ",
      PercentText(SerialFractionOf(last)), " on ", last.cell->run.world_size);
  if (change.low > 0) {
    return "rises " + from_to +
           ": overhead that grows with the ranks, not work that stays serial";
  }
  if (change.high < 0) {
    return "falls " + from_to +
           ": most is lost with the first ranks that are added, little with "
           "more";
  }
  if (ChangeOfSerialFraction(first, last, 1 - kSameFraction).low > 0 &&
      ChangeOfSerialFraction(first, last, 1 + kSameFraction).high < 0) {
    return absl::StrCat("goes ", from_to, ", a change of less than ",
                        PercentText(kSameFraction),
                        " of it: consistent with serial work");
  }
  return absl::StrCat("goes ", from_to,
                      ": the runs vary too much to say whether it changes; "
                      "add --repetitions");
}

std::vector<ScalingRow> ScalingRows(absl::Span<const Cell> cells,
                                    const AnswerConfig& config) {
  std::vector<ScalingRow> rows;
  for (const Cell& cell : cells) {
    if (cell.IsAblation()) continue;
    for (ScalingRow& row : RowsOf(cells, cell, config)) {
      rows.push_back(std::move(row));
    }
  }
  std::set<const Cell*> used;
  for (const ScalingRow& row : rows) used.insert(row.base);
  const bool compares = used.size() > 1 || used.count(nullptr) == 0;
  std::erase_if(rows, [&](const ScalingRow& row) {
    return compares && row.scaling == "base" && used.count(row.cell) == 0;
  });
  absl::c_stable_sort(rows, [](const ScalingRow& a, const ScalingRow& b) {
    return Order(a) < Order(b);
  });
  return rows;
}

std::vector<ScalingSeries> ScalingSeriesOf(absl::Span<const ScalingRow> rows,
                                           const AnswerConfig& config) {
  std::map<std::tuple<Scaling, std::string, const Cell*>, ScalingSeries> series;
  for (const ScalingRow& row : rows) {
    if (!row.efficiency.ok()) continue;
    for (Scaling scaling : kScalings) {
      if (!IsUnder(row, scaling)) continue;
      const std::string trainer = row.cell->Trainer();
      ScalingSeries& one = series[{scaling, trainer, row.base}];
      one.trainer = trainer;
      one.scaling = scaling;
      one.rows.push_back(&row);
    }
  }
  std::vector<ScalingSeries> result;
  for (auto& [key, one] : series) {
    absl::c_stable_sort(one.rows, [](const ScalingRow* a, const ScalingRow* b) {
      return a->cell->run.world_size < b->cell->run.world_size;
    });
    FitLaw(one, config.bootstrap);
    one.serial_fractions = SerialFractionsOf(one);
    one.serial_trend = SerialTrend(one);
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace rankwise
